#include "server/proxy/request/methods.hpp"

#include <array>

namespace fenceguard::proxy {
namespace {

using Kind = Method::Kind;

constexpr std::array methods{
    Method{"GET", Kind::read, false, false, false, true},
    Method{"PUT", Kind::write, true, true},
    Method{"HEAD", Kind::read, false, false, false, true},
    Method{"POST", Kind::write, true, true},
    Method{"DELETE", Kind::write, false, false, true},
    Method{"PATCH", Kind::write, true, true},
    Method{"OPTIONS", Kind::read, false, false, false, true},
    Method{"PROPFIND", Kind::read, true, false, false, true},
    Method{"REPORT", Kind::read, true, false},
    Method{"SEARCH", Kind::read, true, false},
    Method{"PROPPATCH", Kind::write, true, true},
    Method{"MKCOL", Kind::write, false, false, false, true},
    Method{"LOCK", Kind::write, true, false, true},
    Method{"UNLOCK", Kind::write, false, false},
    Method{"MOVE", Kind::pair, false, false, true},
    Method{"COPY", Kind::pair, false, false, true},
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
