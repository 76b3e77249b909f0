#pragma once

// Address: where a ZooKeeper ensemble is and how to speak to it, from a zookeeper:// URL.
//
//   zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/ROOT]
//
// ROOT is the namespace, '/fenceguard' where it is left out; it is created when it is first written to. With
// a user every node of ours is created for that user alone (digest authentication, CREATOR_ALL), without one
// it is open to every user. Parameters for every zookeeper: URL: session_timeout (the server bounds it; 10s
// for guards, 15s for the token source), timeout (for one answer, 10s), acl ('creator', 'open' or, with
// reading for every user, 'read'). Other parameters belong to what the URL opens.
//
// Values; the functions are thread-safe.

#include <chrono>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "guard/source/url.hpp"

namespace fenceguard::zookeeper {

enum class Acl { open, creator, read };

struct Address {
  std::string hosts;  // 'h1:2181,h2:2181', as the C client wants them
  std::string root = "/fenceguard";
  std::string user;  // empty: no authentication
  std::string password;
  Acl acl = Acl::open;
  std::optional<std::chrono::milliseconds> session_timeout;  // as the URL says, if it does
  std::chrono::milliseconds timeout{10'000};                 // for one answer
  std::string shown;                                         // the URL without its password
};

// Throws InvalidInput for a parameter that is neither known to all nor in own, or a URL that is no such URL.
[[nodiscard]] Address address_of(const Url& url, std::initializer_list<std::string_view> own = {});

}  // namespace fenceguard::zookeeper
