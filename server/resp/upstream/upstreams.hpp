#pragma once

// Upstreams: the connections of one loop to Redis: a few shared ones for each user, database and server, and
// those that one client has alone. And what is known of Redis: its commands, and under Redis Cluster which
// server has which slot. A connection that was lost with writes under way is ended at its server as well.
//
// Thread safety: the loop's thread only.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "adapters/redis/address.hpp"
#include "adapters/redis/wire/cluster.hpp"
#include "adapters/redis/wire/commands.hpp"
#include "server/net/alarm.hpp"
#include "server/net/loop.hpp"
#include "server/resp/upstream/link.hpp"

namespace fenceguard::resp {

// Of the shared connections that are not those of the URL's own user and database.
struct UpstreamLimits {
  std::chrono::milliseconds idle_max{60'000};  // then one is closed, and opened when it is used again
  std::size_t connections_max = 256;           // that are busy; of the others the idlest makes room
  // For so long what was sent on a lost connection may take effect where its server cannot end it.
  std::chrono::milliseconds settle{30'000};
};

class Upstreams : public std::enable_shared_from_this<Upstreams> {
 public:
  Upstreams(net::Loop& loop, redis::Address address, std::shared_ptr<redis::CommandTable> commands,
            UpstreamLimits limits = {});
  ~Upstreams();

  // Whose connection: a user's, in a database; lane: which of the shared ones; 'lanes' and above: one that a
  // single client has, until drop().
  struct Place {
    Identity identity{};
    int database = 0;
    std::size_t lane = 0;
  };
  static constexpr std::size_t lanes = 2;
  // The shared one for what only reads: beside a write that waits at the server the others would wait, too.
  static constexpr std::size_t reading_lane = ~std::size_t{0};

  // Makes sure that there is a connection, and that the commands and slots are known. ready may be called
  // within this call.
  using Ready = std::function<void(const Greeting&)>;
  void bind(const Place& place, Ready ready);

  // The shared connection, opened if there is none. slot: see RedisPort::send(); of none: the first server.
  [[nodiscard]] std::shared_ptr<Link> shared(const Place& place, int slot);
  // As above, but to this server.
  [[nodiscard]] std::shared_ptr<Link> shared(const Place& place, const redis::Endpoint& server);
  [[nodiscard]] std::shared_ptr<Link> open_owned(const Place& place, int slot, Channel channel,
                                                 LinkUserPtr owner);
  // Ends what there is in a lane.
  void drop(std::size_t lane);

  [[nodiscard]] bool is_cluster() const noexcept { return is_cluster_; }
  [[nodiscard]] const std::string& version() const noexcept { return version_; }
  [[nodiscard]] int server_of(int slot);
  [[nodiscard]] const redis::Endpoint& endpoint_of(int slot) const;
  // Of an error 'MOVED ...' or 'ASK ...'; nothing for another.
  [[nodiscard]] std::optional<redis::Redirection> redirected(std::string_view error);

  // Asks what is called by this name.
  void learn_command(const Place& place, std::string name, std::function<void()> done);

  // Every connection ends.
  void close();

 private:
  using Key = std::tuple<Identity, int, redis::Endpoint, std::size_t>;
  struct Shared {
    std::shared_ptr<Link> link;
    std::vector<Ready> waiting;
  };
  using Answered = std::function<void(std::string_view reply)>;  // empty: none came
  // A link that was lost, until what was sent on it takes effect no more.
  struct Settling {
    std::shared_ptr<Link> link;
    net::Timer timer;
    std::chrono::milliseconds pause{5};  // before it is asked again; doubled each time
  };

  [[nodiscard]] std::shared_ptr<Link> make(const Place& place, const redis::Endpoint& server, Channel channel,
                                           LinkUserPtr owner);
  [[nodiscard]] std::shared_ptr<Link> make(redis::Address address, Channel channel, LinkUserPtr owner);
  Shared& open_shared(const Key& key, const Place& place);
  [[nodiscard]] bool is_limited(const Key& key) const;
  // For one more that is limited. False: all are busy.
  [[nodiscard]] bool make_room();
  void confirm(const std::shared_ptr<Link>& link, const Identity& identity, Ready ready);
  using LinkPtr = std::shared_ptr<Link>;
  void greeted(const Key& key, const LinkPtr& link, const Greeting& greeting);
  // An error ends the link.
  void tell(const Key& key, const LinkPtr& link, const Greeting& greeting);
  void learn(const Key& key, const LinkPtr& link, const Greeting& greeting);
  void learn_commands(const std::shared_ptr<Link>& link, std::function<void(const std::string& fault)> done);
  void learn_slots(const std::shared_ptr<Link>& link, std::function<void()> done);
  void ask(const std::shared_ptr<Link>& link, redis::Arguments words, Answered answered);
  // Has its server end a lost link, and sees that it has: that very process of a server. Its users are told
  // then, or when the settle time is over.
  void settle(Link& lost);
  void end_at_server(const std::shared_ptr<Settling>& settling);
  void end_there(const std::shared_ptr<Settling>& settling, const LinkPtr& there);
  void end_again(const std::shared_ptr<Settling>& settling);
  [[nodiscard]] net::SteadyTime sweep(net::SteadyTime now);
  // When it is to be called again.
  [[nodiscard]] net::SteadyTime close_idle(net::SteadyTime now);

  net::Loop& loop_;
  const redis::Address address_;
  const std::shared_ptr<redis::CommandTable> commands_;
  const UpstreamLimits limits_;
  net::Alarm alarm_;
  std::map<Key, Shared> shared_;
  std::vector<std::weak_ptr<Link>> links_;
  redis::SlotMap slots_;
  std::vector<redis::Endpoint> seen_;  // servers by their numbers, which stay
  std::size_t first_ = 0;              // of the address's endpoints, the one that is asked first
  bool is_cluster_ = false, is_known_ = false;
  bool has_commands_ = false;
  std::string version_ = "7.0.0";
};

}  // namespace fenceguard::resp
