#pragma once

// Address: where an etcd cluster is and how to speak to it, from an etcd:// URL.
//
//   etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/PREFIX]
//
// PREFIX is the namespace, 'fenceguard' where it is left out: every key of ours starts with it and a slash.
// Parameters for every etcd: URL: timeout (for one answer, 5s), connect_timeout (2s), and for TLS, which any
// of them switches on: tls=1, cacert, cert, key (files), server_name. Other parameters belong to what the URL
// opens.
//
// Values; the functions are thread-safe.

#include <chrono>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "guard/source/url.hpp"

namespace fenceguard::etcd {

struct Tls {
  bool is_on = false;
  std::string cacert;       // a file of certificates; empty: the system's
  std::string cert;         // of the client, a file; empty: none
  std::string key;          // its key, a file
  std::string server_name;  // that the server's certificate must have, where it is not the host's
};

struct Address {
  std::vector<std::string> endpoints;  // 'http://h1:2379', or https; at least one
  std::string user;                    // empty: no authentication
  std::string password;
  Tls tls;
  std::string prefix = "fenceguard";  // without a slash at its end
  std::chrono::milliseconds connect_timeout{2'000};
  std::chrono::milliseconds timeout{5'000};  // for one answer
  std::string shown;                         // the URL without its password
};

// Throws InvalidInput for a parameter that is neither known to all nor in own, or a URL that is no such URL.
[[nodiscard]] Address address_of(const Url& url, std::initializer_list<std::string_view> own = {});

}  // namespace fenceguard::etcd
