#include "guard/error.hpp"

namespace fenceguard {

const char* to_string(FaultKind kind) noexcept {
  switch (kind) {
    case FaultKind::invalid_input:
      return "invalid";
    case FaultKind::implausible:
      return "implausible";
    case FaultKind::unavailable:
      return "unavailable";
    case FaultKind::unknown:
      return "unknown";
  }
  return "unknown";
}

void raise_fault(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::invalid_input:
      throw InvalidInput(fault.message);
    case FaultKind::implausible:
      throw Implausible(fault.message);
    case FaultKind::unavailable:
      throw Unavailable(fault.message);
    case FaultKind::unknown:
      break;
  }
  throw OutcomeUnknown(fault.message);
}

Fault current_fault() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  } catch (const std::exception& error) {
    return {FaultKind::unknown, error.what()};
  } catch (...) {
    return {FaultKind::unknown, "an exception of an unknown type"};
  }
}

}  // namespace fenceguard
