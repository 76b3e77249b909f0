#pragma once

// The methods that the proxy knows, and what each does to what it names. A method that is not known here
// could write anything, so it is not passed on.
//
// Pure; safe to use from any thread.

#include <optional>
#include <string_view>

namespace fenceguard::proxy {

struct Method {
  enum class Kind {
    read,   // without a claim a plain read, with one a fenced read
    write,  // needs a claim
    pair,   // a write that touches a second resource, its Destination
  };
  std::string_view name;
  Kind kind;
  // A body belongs to it. One that comes with another method is passed on too, but a server that does not
  // expect it could take it for the next request: such a connection ends with its answer.
  bool has_body;
  bool states_empty_body;  // 'Content-Length: 0' says that there is none
  // Of a collection it would touch everything in it, unless it is told not to.
  bool reaches_members = false;
  // A final slash is part of what it names: a collection.
  bool may_name_collection = false;
};

// Nothing for an unknown one. Names are case-sensitive.
[[nodiscard]] std::optional<Method> find_method(std::string_view name) noexcept;

// For Allow.
[[nodiscard]] std::string_view known_methods() noexcept;

}  // namespace fenceguard::proxy
