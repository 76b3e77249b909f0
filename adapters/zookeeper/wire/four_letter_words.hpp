#pragma once

// What a single server says of itself, by ZooKeeper's four-letter words (srvr, conf, mntr) on a connection of
// their own. Thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fenceguard::zookeeper {

// 'h1:2181,h2:2181' one by one.
[[nodiscard]] std::vector<std::string> each_host(const std::string& hosts);

// The server's answer; nothing if it cannot be reached or says nothing within some seconds. A word that the
// server does not allow is answered with a sentence that is_forbidden() knows.
[[nodiscard]] std::optional<std::string> ask_server(const std::string& host, std::string_view word);
[[nodiscard]] bool is_forbidden(const std::string& answer);

// What follows name in its line of text: 'leader' after "Mode: ". Nothing if no line begins so.
[[nodiscard]] std::optional<std::string> after(const std::string& text, std::string_view name);

}  // namespace fenceguard::zookeeper
