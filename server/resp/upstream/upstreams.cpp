#include "server/resp/upstream/upstreams.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "guard/error.hpp"
#include "guard/token.hpp"
#include "server/resp/wire/reply.hpp"

namespace fenceguard::resp {
namespace {

constexpr std::chrono::milliseconds sweep_apart_min{10};
constexpr std::chrono::milliseconds settle_pause_max{500};

// One question of ours.
class Question : public LinkUser {
 public:
  explicit Question(std::function<void(std::string_view)> answered) : answered_{std::move(answered)} {}
  void link_replied(Channel /*channel*/, std::string_view reply, net::SteadyTime /*sent_at*/) override {
    answered_(reply);
  }
  void link_lost(Channel /*channel*/, bool /*was_sent*/, std::string_view /*why*/) override { answered_({}); }

 private:
  const std::function<void(std::string_view)> answered_;
};

redis::Reply reply_of(const ReplyView& view) {
  using Kind = redis::Reply::Kind;
  redis::Reply reply;
  if (view.is_nil) return reply;
  switch (view.kind) {
    case '+':
    case '-':
    case '$':
      reply.kind = view.kind == '+' ? Kind::status : view.kind == '-' ? Kind::error : Kind::text;
      reply.text = view.text;
      break;
    case ':':
      reply.kind = Kind::integer;
      reply.integer = std::strtoll(std::string{view.text}.c_str(), nullptr, 10);
      break;
    default:
      reply.kind = Kind::array;
      auto rest = view.inside;
      for (auto element = take_value(rest); element; element = take_value(rest))
        reply.elements.push_back(reply_of(*element));
  }
  return reply;
}

redis::Reply reply_of(std::string_view bytes) {
  const auto view = take_value(bytes);
  return view ? reply_of(*view) : redis::Reply{};
}

}  // namespace

Upstreams::Upstreams(net::Loop& loop, redis::Address address, std::shared_ptr<redis::CommandTable> commands,
                     UpstreamLimits limits)
    : loop_{loop},
      address_{std::move(address)},
      commands_{std::move(commands)},
      limits_{limits},
      alarm_{loop.context(), sweep_apart_min, [this](net::SteadyTime now) { return sweep(now); }} {}

Upstreams::~Upstreams() {
  close();
}

void Upstreams::close() {
  for (const auto& weak : links_)
    if (const auto link = weak.lock()) link->forget();
  links_.clear();
  shared_.clear();
}

void Upstreams::drop(std::size_t lane) {
  std::vector<LinkPtr> dropped;
  std::erase_if(shared_, [&](auto& entry) {
    if (std::get<std::size_t>(entry.first) != lane) return false;
    if (entry.second.link) dropped.push_back(std::move(entry.second.link));
    return true;
  });
  for (const auto& link : dropped) link->fail("its client is gone");
}

net::SteadyTime Upstreams::sweep(net::SteadyTime now) {
  const auto self = weak_from_this().lock();  // the last session may end in it
  std::erase_if(links_, [](const auto& weak) { return weak.expired(); });
  const auto links = links_;
  for (const auto& weak : links)
    if (const auto link = weak.lock()) link->expire(now);
  auto earliest = close_idle(now);
  for (const auto& weak : links_)
    if (const auto link = weak.lock()) earliest = std::min(earliest, link->deadline());
  return earliest;
}

net::SteadyTime Upstreams::close_idle(net::SteadyTime now) {
  auto earliest = net::SteadyTime::max();
  std::erase_if(shared_, [&](const auto& entry) {
    const auto& [key, shared] = entry;
    if (!shared.waiting.empty()) return false;
    if (!shared.link || !shared.link->is_open()) return true;  // null: there was no memory for it
    const bool is_own_lane = std::get<std::size_t>(key) >= lanes;
    const auto since = is_limited(key) || is_own_lane ? shared.link->idle_since() : std::nullopt;
    if (!since) return false;
    if (*since + limits_.idle_max > now) {
      earliest = std::min(earliest, *since + limits_.idle_max);
      return false;
    }
    shared.link->close();
    return true;
  });
  return earliest;
}

// Those of a lane of one client's own are as many as these clients.
bool Upstreams::is_limited(const Key& key) const {
  const bool is_own = std::get<Identity>(key) == Identity{address_.user, address_.password} &&
                      std::get<int>(key) == address_.database;
  const auto lane = std::get<std::size_t>(key);
  return !is_own && (lane < lanes || lane == reading_lane);
}

bool Upstreams::make_room() {
  std::size_t count = 0;
  auto idlest = shared_.end();
  for (auto entry = shared_.begin(); entry != shared_.end(); ++entry) {
    const auto& [key, shared] = *entry;
    if (!is_limited(key) || !shared.link || !shared.link->is_open()) continue;
    ++count;
    const auto since = shared.waiting.empty() ? shared.link->idle_since() : std::nullopt;
    if (since && (idlest == shared_.end() || *since < *idlest->second.link->idle_since())) idlest = entry;
  }
  if (count < limits_.connections_max) return true;
  if (idlest == shared_.end()) return false;
  idlest->second.link->close();
  shared_.erase(idlest);
  return true;
}

const redis::Endpoint& Upstreams::endpoint_of(int slot) const {
  const auto* found = slot >= 0 && is_cluster_ ? slots_.find(static_cast<std::size_t>(slot)) : nullptr;
  return found != nullptr ? *found : address_.endpoints.at(first_);
}

int Upstreams::server_of(int slot) {
  const auto& server = endpoint_of(slot);
  const auto at = std::ranges::find(seen_, server) - seen_.begin();
  if (at == std::ssize(seen_)) seen_.push_back(server);
  return static_cast<int>(at);
}

std::shared_ptr<Link> Upstreams::make(const Place& place, const redis::Endpoint& server, Channel channel,
                                      LinkUserPtr owner) {
  auto address = address_.at(server);
  address.user = place.identity.user;
  address.password = place.identity.password;
  address.database = place.database;
  auto link = make(std::move(address), channel, std::move(owner));
  link->settle = [this, lost = link.get()] { settle(*lost); };
  return link;
}

std::shared_ptr<Link> Upstreams::make(redis::Address address, Channel channel, LinkUserPtr owner) {
  auto link = std::make_shared<Link>(loop_, std::move(address), channel, std::move(owner));
  link->arm = [this](net::SteadyTime deadline) { alarm_.arm(deadline); };
  if (links_.size() == links_.capacity())
    std::erase_if(links_, [](const auto& weak) { return weak.expired(); });
  links_.push_back(link);
  return link;
}

Upstreams::Shared& Upstreams::open_shared(const Key& key, const Place& place) {
  auto& shared = shared_[key];
  if (shared.link && shared.link->is_open()) return shared;
  const bool has_room = !is_limited(key) || make_room();
  shared.link = make(place, std::get<redis::Endpoint>(key), Channel::shared, nullptr);
  const auto told = [weak = weak_from_this(), key, weak_link = std::weak_ptr{shared.link},
                     has_room](const Greeting& greeting) {
    const auto self = weak.lock();
    const auto link = weak_link.lock();
    if (self && link) has_room ? self->greeted(key, link, greeting) : self->tell(key, link, greeting);
  };
  if (has_room) {
    shared.link->open(told);
  } else {
    shared.link->decline("too many users and databases are in use at once; try again", told);
  }
  return shared;
}

std::shared_ptr<Link> Upstreams::shared(const Place& place, const redis::Endpoint& server) {
  return open_shared({place.identity, place.database, server, place.lane}, place).link;
}

std::shared_ptr<Link> Upstreams::shared(const Place& place, int slot) {
  return shared(place, endpoint_of(slot));
}

std::shared_ptr<Link> Upstreams::open_owned(const Place& place, int slot, Channel channel,
                                            LinkUserPtr owner) {
  auto link = make(place, endpoint_of(slot), channel, std::move(owner));
  link->open([](const Greeting&) {});
  return link;
}

void Upstreams::bind(const Place& place, Ready ready) {
  const Key key{place.identity, place.database, endpoint_of(-1), place.lane};
  auto& shared = open_shared(key, place);
  const bool is_known = shared.link->is_ready() && shared.waiting.empty() && is_known_;
  if (is_known && (has_commands_ || shared.link->greeting().needs_password))
    return confirm(shared.link, place.identity, std::move(ready));
  const bool begins_to_learn = shared.link->is_ready() && shared.waiting.empty();
  shared.waiting.push_back(std::move(ready));
  if (begins_to_learn) learn(key, LinkPtr{shared.link}, Greeting{shared.link->greeting()});
}

// A connection stays logged in when its password is changed or its user is switched off: whether a client may
// use it is asked each time.
void Upstreams::confirm(const std::shared_ptr<Link>& link, const Identity& identity, Ready ready) {
  const auto greeting = link->greeting();
  const bool is_own = identity == Identity{address_.user, address_.password};
  if (is_own || greeting.needs_password) return ready(greeting);
  std::vector<std::string_view> words{"AUTH", identity.password};
  if (!identity.user.empty()) words.insert(words.begin() + 1, identity.user);
  ask(link, words, [greeting, ready = std::move(ready)](std::string_view reply) {
    auto said = greeting;
    if (reply.empty()) said.error = "the connection to Redis was lost";
    if (reply.starts_with('-')) said.error = reply.substr(1, reply.size() - 3);
    ready(said);
  });
}

void Upstreams::greeted(const Key& key, const LinkPtr& link, const Greeting& greeting) {
  if (greeting.error.empty()) return learn(key, link, greeting);
  // Another one of the cluster may answer.
  if (address_.endpoints.size() > 1) first_ = (first_ + 1) % address_.endpoints.size();
  tell(key, link, greeting);
}

void Upstreams::tell(const Key& key, const LinkPtr& link, const Greeting& greeting) {
  const auto found = shared_.find(key);
  if (found == shared_.end()) return;
  Greeting copy;
  try {
    copy = greeting;
  } catch (const std::bad_alloc&) {
    copy.error = "no memory";  // which needs none, or they would wait for ever
  }
  const auto kept = link;
  const auto waiting = std::exchange(found->second.waiting, {});
  const bool is_wrong = !copy.error.empty();
  // Another one may have been opened in its place meanwhile.
  if (is_wrong && found->second.link == kept) shared_.erase(found);
  for (const auto& ready : waiting) ready(copy);
  if (is_wrong) kept->fail(copy.error);
}

// What every client needs to be known before the first of its commands.
void Upstreams::learn(const Key& key, const LinkPtr& link, const Greeting& greeting) {
  if (greeting.needs_password) return tell(key, link, greeting);
  if (version_ != greeting.version) has_commands_ = false;  // another one may have others
  version_ = greeting.version;
  if (is_known_ && greeting.is_cluster != is_cluster_) {
    auto wrong = greeting;
    wrong.error = "what answers is another kind of server than before";
    return tell(key, link, wrong);
  }
  is_cluster_ = greeting.is_cluster;
  is_known_ = true;
  if (!is_cluster_ && address_.endpoints.size() > 1) {
    auto wrong = greeting;
    wrong.error = fmt::format("{} names several servers, and what answers is no Redis Cluster; name one",
                              address_.shown);
    return tell(key, link, wrong);
  }
  const auto told = [this, key, link, greeting] { tell(key, link, greeting); };
  const auto then = [this, link, told] { is_cluster_ ? learn_slots(link, told) : told(); };
  if (has_commands_) return then();
  learn_commands(link, [this, key, link, greeting, then](const std::string& fault) {
    has_commands_ = fault.empty();
    if (has_commands_) return then();
    auto wrong = greeting;
    wrong.error = fault;
    tell(key, link, wrong);
  });
}

// By the names under which they can be called: a command that was renamed describes itself by its own name.
void Upstreams::learn_commands(const std::shared_ptr<Link>& link,
                               std::function<void(const std::string& fault)> done) {
  const std::string_view list[] = {"COMMAND", "LIST"};
  ask(link, list, [this, link, done = std::move(done)](std::string_view reply) {
    const auto names = std::make_shared<redis::Reply>(reply_of(reply));
    std::vector<std::string_view> words{"COMMAND", "INFO"};
    for (const auto& name : names->elements) words.emplace_back(name.text);
    ask(link, words, [this, names, done](std::string_view infos) {
      try {
        std::vector<std::string_view> called;
        for (const auto& name : names->elements) called.emplace_back(name.text);
        if (infos.empty()) throw Unavailable("Redis did not say which commands it has");
        commands_->learn(called, reply_of(infos));
      } catch (const Error& error) {
        return done(error.what());
      }
      done({});
    });
  });
}

void Upstreams::learn_slots(const std::shared_ptr<Link>& link, std::function<void()> done) {
  const std::string_view words[] = {"CLUSTER", "SLOTS"};
  ask(link, words, [this, done = std::move(done)](std::string_view reply) {
    if (reply.starts_with('*')) slots_.learn(reply_of(reply), address_.endpoints.at(first_));
    done();
  });
}

void Upstreams::ask(const std::shared_ptr<Link>& link, redis::Arguments words, Answered answered) {
  if (!link->is_open()) return answered({});
  std::string bytes;
  redis::encode(words, bytes);
  link->send(std::make_shared<Question>([self = shared_from_this(), answered = std::move(answered)](
                                            std::string_view reply) { answered(reply); }),
             bytes, 1, false);
}

void Upstreams::settle(Link& lost) {
  lost.settle_until(std::chrono::steady_clock::now() + limits_.settle);
  const auto& greeting = lost.greeting();
  if (greeting.id.empty()) return lost.explain("its user may not say CLIENT INFO");
  if (greeting.run_id.empty()) return lost.explain("its user may not say INFO server");
  end_at_server(std::make_shared<Settling>(Settling{lost.shared_from_this(), net::Timer{loop_.context()}}));
}

void Upstreams::end_at_server(const std::shared_ptr<Settling>& settling) {
  auto address = settling->link->address();
  address.database = 0;
  const auto link = make(std::move(address), Channel::shared, nullptr);
  link->takes_replica = true;
  link->open([weak = weak_from_this(), settling, weak_link = std::weak_ptr{link}](const Greeting& greeting) {
    const auto self = weak.lock();
    const auto there = weak_link.lock();
    if (!self || !there) return;
    if (greeting.error.empty() && greeting.run_id == settling->link->greeting().run_id)
      return self->end_there(settling, there);
    // A name may lead to another server by now, or the server have been started anew: what it does not have
    // may still be had by the one that was lost, and the name lead back to that.
    settling->link->explain(greeting.error.empty()
                                ? "another server answers there now, or the same was started anew"
                                : greeting.error);
    there->close();
    self->end_again(settling);
  });
}

// By number and address: both are told by the one process, which gives a number once.
void Upstreams::end_there(const std::shared_ptr<Settling>& settling, const LinkPtr& there) {
  const auto& lost = settling->link->greeting();
  const std::string_view words[] = {"CLIENT", "KILL", "ID", lost.id, "ADDR", lost.address};
  ask(there, words, [this, settling, there](std::string_view reply) {
    // Ended: whether it is gone is seen by the next.
    if (reply.starts_with(':') && reply != ":0\r\n") return end_there(settling, there);
    there->close();
    if (reply.starts_with(':')) return settling->link->tell_settled();
    if (!reply.empty())
      settling->link->explain(
          fmt::format("it could not be ended there: {}", reply.substr(1, reply.size() - 3)));
    // No later one will be permitted either.
    if (reply.starts_with("-NOPERM") || reply.starts_with("-NOAUTH") || reply.starts_with("-ERR")) return;
    end_again(settling);
  });
}

void Upstreams::end_again(const std::shared_ptr<Settling>& settling) {
  settling->timer.expires_after(settling->pause);
  settling->pause = std::min(2 * settling->pause, settle_pause_max);
  settling->timer.async_wait([weak = weak_from_this(), settling](const boost::system::error_code& /*error*/) {
    const auto self = weak.lock();
    if (self && settling->link->is_settling()) self->end_at_server(settling);
  });
}

void Upstreams::learn_command(const Place& place, std::string name, std::function<void()> done) {
  const auto link = shared(place, -1);
  const std::string_view words[] = {"COMMAND", "INFO", name};
  ask(link, words, [this, name, done = std::move(done)](std::string_view reply) {
    try {
      const std::string_view names[] = {name};
      if (reply.starts_with('*')) commands_->learn(names, reply_of(reply));
    } catch (const Error&) {
      // It is not known, then.
    }
    done();
  });
}

std::optional<redis::Redirection> Upstreams::redirected(std::string_view error) {
  redis::Reply reply;
  reply.kind = redis::Reply::Kind::error;
  reply.text = error;
  auto redirection = redis::redirection_of(reply, address_.endpoints.at(first_));
  if (redirection && redirection->kind == redis::Redirection::Kind::moved)
    slots_.set(redirection->slot, redirection->to);
  return redirection;
}

}  // namespace fenceguard::resp
