// hipRTC declares __hip_bfloat16 and its conversions itself; CuPy includes this header nevertheless.
#pragma once
