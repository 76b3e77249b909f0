#include "server/proxy/upstream/upstream_options.hpp"

#include "guard/error.hpp"
#include "guard/resource.hpp"
#include "guard/support/percent.hpp"

namespace fenceguard::proxy {
namespace {

// '/base/path', encoded; empty if there is none. One slash at the end is forgiven.
std::string base_path_of(std::string_view path) {
  if (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (path.empty()) return {};
  const auto why = Resource::objection(path.substr(1));
  if (path.front() != '/' || !why.empty() || path.find('\\') != std::string_view::npos)
    throw InvalidInput("the path of the storage's URL has no empty or dot segment, and no backslash");
  return percent_encode_path(path);
}

bool has_port(std::string_view authority) {
  const auto colon = authority.rfind(':');
  return colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos;
}

}  // namespace

UpstreamOptions UpstreamOptions::from(const Url& url, const LaneOptions& lane) {
  const bool is_tls = url.scheme == "https";
  if (!is_tls && url.scheme != "http") throw InvalidInput("an upstream is named by an http: or https: URL");
  if (!url.user.empty() || !url.password.empty())
    throw InvalidInput("the storage's URL takes no user: clients send their own Authorization");
  if (url.authority.empty()) throw InvalidInput("the storage's URL names a host: http://HOST:PORT");
  url.require_known_parameters({});
  const auto address = net::Address::parse(
      has_port(url.authority) ? url.authority : url.authority + (is_tls ? ":443" : ":80"));
  UpstreamOptions options;
  options.endpoints = net::resolve(address);
  options.origin = {url.authority, base_path_of(url.path), lane.forward_claim, is_tls};
  options.upstream_timeout = lane.upstream_timeout;
  options.settle = lane.settle;
  if (is_tls) {
    options.tls = net::TlsContext::client(
        {lane.upstream_ca_file, lane.upstream_certificate_file, lane.upstream_key_file}, address.host);
  }
  return options;
}

}  // namespace fenceguard::proxy
