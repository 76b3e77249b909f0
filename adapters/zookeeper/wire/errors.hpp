#pragma once

// What a code of the C client means to us where it is no answer: the one place where ZooKeeper's words become
// our faults. All functions are thread-safe.

#include <chrono>
#include <optional>
#include <string_view>

#include "adapters/zookeeper/answer.hpp"
#include "guard/error.hpp"

namespace fenceguard::zookeeper {

enum class Access { read, write };

// The answer that the code stands for, if it is one.
[[nodiscard]] std::optional<Code> code_of(int code) noexcept;

// The fault that the code stands for. doing begins its message: 'creating /fenceguard/floor'.
// REQUIRES: !code_of(code).
[[nodiscard]] Fault fault_of(int code, Access access, std::string_view doing);

// No answer came in time.
[[nodiscard]] Fault late_fault(Access access, std::string_view doing, std::chrono::milliseconds timeout);

}  // namespace fenceguard::zookeeper
