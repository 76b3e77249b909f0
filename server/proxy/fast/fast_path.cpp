#include "server/proxy/fast/fast_path.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "server/data/resource_path.hpp"
#include "server/proxy/request/field_names.hpp"
#include "server/proxy/upstream/request_writer.hpp"

namespace fenceguard::proxy {
namespace {

// An answer to HEAD without a length is streamed, so HEAD is not among them.
constexpr std::array<std::string_view, 5> plain_methods{"GET", "PUT", "POST", "PATCH", "DELETE"};

std::optional<Method> find_plain_method(const http::PlainRequest& request) noexcept {
  if (std::find(plain_methods.begin(), plain_methods.end(), request.method) == plain_methods.end())
    return std::nullopt;
  const auto method = find_method(request.method);
  if (request.has_body() && !method->has_body) return std::nullopt;
  return method;
}

// The fields of a claim.
struct PlainFields {
  std::string_view token;
  std::string_view holder;

  // False: the field means something here, or to a server behind, that is not plain.
  [[nodiscard]] bool take(const http::FieldView& field) noexcept {
    const auto& [name, value] = field;
    if (could_begin_with(name, "Fencing-")) {
      auto* const slot = equals_ignoring_case(name, "Fencing-Token")    ? &token
                         : equals_ignoring_case(name, "Fencing-Holder") ? &holder
                                                                        : nullptr;
      if (slot == nullptr || !slot->empty()) return false;
      *slot = value;
      return true;
    }
    if (passes_to_upstream(name, true))
      return !equals_ignoring_case(name, "If") && !equals_ignoring_case(name, "Depth") &&
             !equals_ignoring_case(name, "Overwrite");
    // What the request itself has read.
    return equals_ignoring_case(name, "Host") || equals_ignoring_case(name, "Content-Length") ||
           equals_ignoring_case(name, "Connection");
  }
};

}  // namespace

http::FastExchangePtr FastPath::begin(const http::PlainRequest& request, http::FastClient& client) {
  const auto& context = shared_.context;
  const auto method = find_plain_method(request);
  if (!method) return nullptr;
  PlainFields fields;
  for (const auto& field : request.fields()) {
    if (!fields.take(field)) return nullptr;
  }
  if (context.hosts != nullptr && !client.is_local() && !context.hosts->is_our_host(request.host))
    return nullptr;
  const auto path = request.path.substr(1);
  const auto name = fenced_part(path, context.resource_depth);
  if (name.empty() || !Resource::objection(path).empty()) return nullptr;
  std::optional<Claim> claim;
  if (!fields.token.empty()) {
    const auto token = Token::parse(fields.token);
    auto resource = Resource::parse(name);
    auto holder = fields.holder.empty() ? Holder{} : Holder::parse(fields.holder);
    if (!token || !resource || !holder || context.keys != nullptr) return nullptr;
    claim = Claim{std::move(*resource), *token, std::move(*holder), std::nullopt};
  } else if (!fields.holder.empty() || method->kind != Method::Kind::read) {
    return nullptr;
  }
  auto fast = make_request();
  auto& out = fast->outgoing();
  out.clear();
  write_request_head(out,
                     {*method, request.path, request.query, request.host,
                      context.resource_depth == 0 && method->reaches_members},
                     request.fields(), {client.peer(), client.is_tls()}, shared_.pool.options().origin,
                     {request.has_body(), request.body.size()});
  out.append(request.body);
  shared_.parsed.fetch_add(1, std::memory_order_relaxed);
  fast->begin(*method, std::move(claim), client);
  return http::FastExchangePtr{fast.release()};
}

std::unique_ptr<FastRequest> FastPath::make_request() {
  auto& spare = shared_.spare;
  if (spare.empty()) return std::make_unique<FastRequest>(shared_);
  auto taken = std::move(spare.back());
  spare.pop_back();
  return taken;
}

}  // namespace fenceguard::proxy
