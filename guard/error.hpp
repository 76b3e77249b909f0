#pragma once

// Faults. A verdict is a value (see judge.hpp); a fault is what is left when there is no answer: bad input, a
// store that cannot be reached, a write whose end was not seen. There are few kinds, one for each thing that
// a caller would do differently, and each comes in two forms: an exception for code that waits, a Fault value
// for code that is called back. The library never repeats a call whose outcome is unknown.

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace fenceguard {

enum class FaultKind {
  invalid_input,  // malformed or out of range; nothing was sent, correct it
  implausible,    // the claim would raise a fence beyond the jump bound; no fence moved
  unavailable,    // certainly nothing was applied; try again later
  unknown,        // the write may or may not have taken effect
};

// The word for a kind on the wire, in metrics and in logs.
[[nodiscard]] const char* to_string(FaultKind kind) noexcept;

// Base of all exceptions of the library. what() is a sentence for people; it never holds a password or a
// payload.
class Error : public std::runtime_error {
 public:
  Error(FaultKind kind, const std::string& message) : std::runtime_error{message}, kind_{kind} {}
  [[nodiscard]] FaultKind kind() const noexcept { return kind_; }

 private:
  FaultKind kind_;
};

class InvalidInput : public Error {
 public:
  explicit InvalidInput(const std::string& message) : Error{FaultKind::invalid_input, message} {}
};

class Implausible : public Error {
 public:
  explicit Implausible(const std::string& message) : Error{FaultKind::implausible, message} {}
};

class Unavailable : public Error {
 public:
  explicit Unavailable(const std::string& message) : Error{FaultKind::unavailable, message} {}
};

class OutcomeUnknown : public Error {
 public:
  explicit OutcomeUnknown(const std::string& message) : Error{FaultKind::unknown, message} {}
};

// A fault as a value.
struct Fault {
  FaultKind kind = FaultKind::unavailable;
  std::string message;
  std::chrono::milliseconds retry_after{};  // when to try again, where that is known
};

// Throws the exception that stands for the fault.
[[noreturn]] void raise_fault(const Fault& fault);

// The fault that stands for the exception now being handled. What is no Error of ours counts as 'unknown',
// because then the outcome is not certain. REQUIRES: called inside a catch block.
[[nodiscard]] Fault current_fault();

// An answer or a fault.
template <class T>
class Outcome {
 public:
  Outcome(T value) : content_{std::in_place_index<0>, std::move(value)} {}
  Outcome(Fault fault) : content_{std::in_place_index<1>, std::move(fault)} {}

  [[nodiscard]] bool ok() const noexcept { return content_.index() == 0; }
  // REQUIRES: ok().
  [[nodiscard]] const T& value() const { return std::get<0>(content_); }
  [[nodiscard]] T& value() { return std::get<0>(content_); }
  // REQUIRES: !ok().
  [[nodiscard]] const Fault& fault() const { return std::get<1>(content_); }

  // The answer, or the fault as an exception.
  [[nodiscard]] T value_or_raise() && {
    if (!ok()) raise_fault(fault());
    return std::move(std::get<0>(content_));
  }

 private:
  std::variant<T, Fault> content_;
};

// Receives an outcome, exactly once, on whatever thread has it. Must not block and must not throw.
template <class T>
using Done = std::function<void(Outcome<T>)>;

}  // namespace fenceguard
