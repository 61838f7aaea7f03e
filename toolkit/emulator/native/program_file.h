#pragma once
#include <memory>

#include "program.h"

// Throws std::runtime_error when the file cannot be read or is not of this version.
std::unique_ptr<Program> read_program(const std::string& path);
