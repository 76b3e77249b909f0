#pragma once

// Refusal: why bytes are no request.

#include <string_view>

namespace fenceguard::http {

struct Refusal {
  unsigned status;       // of the answer
  std::string_view why;  // a sentence for people; a literal
};

}  // namespace fenceguard::http
