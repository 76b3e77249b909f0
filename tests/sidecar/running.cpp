#include "tests/sidecar/running.hpp"

#include <boost/json/parse.hpp>

#include "adapters/sqlite/storage.hpp"
#include "adapters/sqlite/token_source.hpp"

namespace fenceguard::test {

Running::Running(RunningOptions options) {
  real_storage_ = sqlite::open_storage(folder_.file("guard.db"), options.storage);
  TokenSource* source = real_storage_->own_source();
  if (!options.has_own_source) {
    other_source_ = sqlite::open_source(folder_.file("leases.db"));
    source = other_source_.get();
  }
  storage_ = std::make_unique<GatedStorage>(*real_storage_);
  source_ = std::make_unique<GatedSource>(*source);
  options.sidecar.storage_scheme = "sqlite";
  if (options.sidecar.listen == SidecarOptions{}.listen) options.sidecar.listen = "127.0.0.1:0";
  if (options.sidecar.control == SidecarOptions{}.control) options.sidecar.control = "127.0.0.1:0";
  sidecar_ = std::make_unique<Sidecar>(*storage_, options.has_source ? source_.get() : nullptr,
                                       std::move(options.sidecar));
}

Running::~Running() {
  storage_->fences().advancing.open();
  source_->asking.open();
  source_->renewing.open();
  source_->granted.open();
  source_->showing.open();
  source_->releasing.open();
  sidecar_.reset();
}

std::string server_url(const std::string& address) {
  return address.starts_with("unix:") ? address : "http://" + address;
}

namespace {

// Longer than a request of a test may wait for a lease.
constexpr auto answer_max = 4 * http::patience;

http::Response send(const std::string& address, http::Request request, const Pairs& fields) {
  for (const auto& [name, value] : fields) request.fields.add(name, value);
  http::Client client{server_url(address), answer_max};
  return client.send(request);
}

}  // namespace

http::Response Running::data(const std::string& method, const std::string& target, const Pairs& fields,
                             const std::string& body) const {
  return send(sidecar_->data_address(), {.method = method, .target = target, .fields = {}, .body = body},
              fields);
}

http::Response Running::control(const std::string& method, const std::string& target, const std::string& json,
                                const Pairs& fields) const {
  http::Request request{.method = method, .target = target, .fields = {}, .body = json};
  if (!json.empty()) request.fields.add("Content-Type", "application/json");
  return send(sidecar_->control_address(), std::move(request), fields);
}

double Running::metric(const std::string& name) const {
  const auto text = "\n" + control("GET", "/metrics").body;
  const auto at = text.find("\n" + name + " ");
  return at == std::string::npos ? 0 : std::stod(text.substr(at + name.size() + 2));
}

std::optional<LeaseRecord> Running::lease(const std::string& resource) const {
  return source_->show(Resource{resource});
}

Pairs claim_fields(std::int64_t token, const std::string& holder) {
  return {{"Fencing-Token", std::to_string(token)}, {"Fencing-Holder", holder}};
}

std::string field(const http::Response& response, const std::string& name) {
  return std::string{response.fields.single(name).value_or("")};
}

boost::json::value json_of(const http::Response& response) {
  return boost::json::parse(response.body);
}

std::string problem_of(const http::Response& response) {
  if (field(response, "Content-Type") != "application/problem+json") return "";
  const std::string type{json_of(response).at("type").as_string()};
  return type.substr(type.rfind(':') + 1);
}

Pairs granted_claim(const http::Response& response) {
  const auto body = json_of(response);
  return {{"Fencing-Token", std::string{body.at("token").as_string()}},
          {"Fencing-Holder", std::string{body.at("holder").as_string()}}};
}

}  // namespace fenceguard::test
