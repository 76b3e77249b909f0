#include "tests/proxy/guarded.hpp"

#include "adapters/sqlite/storage.hpp"

namespace fenceguard::test {

Guarded::Guarded(const std::string& upstream_url, GuardedOptions options) : lane_{std::move(options.lane)} {
  StorageOptions state;
  state.initialise = true;
  lane_.state = sqlite::open_storage(folder_.file("state.db"), state);
  lane_.is_settled = true;
  lanes_ = std::make_unique<proxy::LaneScheduler>(lane_, 0, 1'000);
  const ServiceContext context{.metrics = metrics_,
                               .log = log_,
                               .keys = nullptr,
                               .tls = nullptr,
                               .resource_depth = options.resource_depth,
                               .threads = options.threads,
                               .limits = options.limits,
                               .hosts = options.hosts,
                               .has_fast_path = options.has_fast_path};
  service_ = std::make_unique<proxy::ProxyService>(
      context, *lanes_, proxy::UpstreamOptions::from(Url::parse(upstream_url), lane_));
  address_ = service_->listen("127.0.0.1:0");
}

double Guarded::metric(const std::string& name) {
  const auto text = metrics_.render({}, service_->in_flight());
  const auto at = text.find("\n" + name + " ");
  return at == std::string::npos ? 0 : std::stod(text.substr(at + name.size() + 2));
}

http::Response Guarded::send(const std::string& method, const std::string& target, const Pairs& fields,
                             const std::string& body) const {
  http::Client client{"http://" + address_, http::patience};
  http::Request request{method, target, {}, body, false};
  for (const auto& [name, value] : fields) request.fields.add(name, value);
  return client.send(request);
}

http::Response Guarded::put(const std::string& target, std::int64_t token, const std::string& words,
                            const std::string& body) const {
  auto fields = claim(token);
  if (!words.empty()) fields.emplace_back("Upstream-Do", words);
  return send("PUT", target, fields, body);
}

Pairs claim(std::int64_t token, Pairs more) {
  more.insert(more.begin(), {{"Fencing-Token", std::to_string(token)}, {"Fencing-Holder", "h"}});
  return more;
}

std::string field(const http::Response& response, std::string_view name) {
  return std::string{response.fields.single(name).value_or(std::string_view{})};
}

std::string bytes_of(const std::string& method, const std::string& target, const Pairs& fields,
                     const std::string& body) {
  std::string bytes = method + " " + target + " HTTP/1.1\r\nHost: guard\r\n";
  for (const auto& [name, value] : fields) bytes.append(name).append(": ").append(value).append("\r\n");
  if (!body.empty()) bytes += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return bytes + "\r\n" + body;
}

}  // namespace fenceguard::test
