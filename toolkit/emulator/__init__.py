"""AMD GPU code executed on a CPU: hipRTC without a GPU, a translator of its machine code, and a stand-in HIP runtime.

From source to result:

    hiprtc         AMD's own compiler, from a pinned wheel                     source → code object
    code_object    what the code object says of itself (metadata, symbols)
    disassembly    the LLVM library that comes with that compiler               code object → text
    operands       the texts taken apart
    translate      one record for each instruction                              text → program (cached on disk)
    semantics      what each instruction computes, as tables
    codegen        C++ from the tables                                          one function for each instruction
    build          compiles these and native/ once for each machine
    native/        registers, memory, lanes, matrices, the scheduler of waves, and the HIP runtime (libamdhip64.so.7)
    environment    what an unmodified CuPy for ROCm needs to find an emulated GPU
    device         an emulated GPU in this process, without CuPy

The C++ compiler runs once for each instruction, not once for each kernel: a kernel is a list of pointers to functions over
all lanes of a wave. So a new kernel costs milliseconds, waves can be interrupted anywhere, and every fault knows its
instruction.

What is reported: accesses to no memory (every allocation ends at a page without access), data races and (on request)
uninitialised words in LDS, unknown instructions. What cannot be seen: timing, missing waits, spinning between blocks, how
matrix and transcendental units round inside.

Nothing here imports the rest of the toolkit.
"""
