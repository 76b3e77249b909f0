#include "adapters/http/methods.hpp"

#include <array>

namespace fenceguard::proxy {
namespace {

using Kind = Method::Kind;

constexpr std::array methods{
    Method{"GET", Kind::read, false, false},      Method{"PUT", Kind::write, true, true},
    Method{"HEAD", Kind::read, false, false},     Method{"POST", Kind::write, true, true},
    Method{"DELETE", Kind::write, false, false},  Method{"PATCH", Kind::write, true, true},
    Method{"OPTIONS", Kind::read, false, false},  Method{"PROPFIND", Kind::read, true, false},
    Method{"REPORT", Kind::read, true, false},    Method{"SEARCH", Kind::read, true, false},
    Method{"PROPPATCH", Kind::write, true, true}, Method{"MKCOL", Kind::write, false, false},
    Method{"LOCK", Kind::write, true, false},     Method{"UNLOCK", Kind::write, false, false},
    Method{"MOVE", Kind::pair, false, false},     Method{"COPY", Kind::pair, false, false},
};

}  // namespace

std::optional<Method> find_method(std::string_view name) noexcept {
  for (const auto& method : methods) {
    if (method.name == name) return method;
  }
  return std::nullopt;
}

std::string_view known_methods() noexcept {
  return "GET, HEAD, OPTIONS, PROPFIND, REPORT, SEARCH, PUT, POST, PATCH, DELETE, MKCOL, PROPPATCH, LOCK, "
         "UNLOCK, MOVE, COPY";
}

}  // namespace fenceguard::proxy
