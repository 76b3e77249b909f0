#include "adapters/zookeeper/lock/lock_client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "guard/error.hpp"

namespace fenceguard::zookeeper {
namespace {

// Times that a step is tried again because another client's came between.
constexpr int attempts = 100;

std::string parent_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

[[noreturn]] void raise_contended(const std::string& path) {
  throw Unavailable(path + " changes as often as it is read; try again");
}

Token token_above(std::int64_t zxid, std::int64_t offset) {
  if (offset > std::numeric_limits<std::int64_t>::max() - zxid) {
    throw Unavailable("the tokens of this namespace are exhausted: its offset was raised too far");
  }
  return Token{zxid + offset};
}

struct Data {
  Holder holder;
  std::int64_t offset;
};

// Asks for the children of top and, level by level, of those that look(path, children) gives back and that
// are no entries.
template <class Look>
void walk(Session& session, const std::string& top, Look look) {
  std::vector<std::string> level{top};
  while (!level.empty()) {
    std::vector<std::string> below;
    for (std::size_t begin = 0; begin < level.size(); begin += attempts) {
      // Some at a time, so that what is asked does not pile up at the server.
      const auto end = std::min(level.size(), begin + attempts);
      std::vector<Pending<Answer>> listed;
      for (auto i = begin; i < end; ++i) listed.push_back(session.begin_get_children(level[i]));
      for (auto i = begin; i < end; ++i) {
        for (const auto& child : look(level[i], listed[i - begin].get().children)) {
          if (!sequence_of(child)) below.push_back(level[i] + "/" + child);
        }
      }
    }
    level = std::move(below);
  }
}

// REQUIRES: children were read after the entry was made.
LockClient::Place place_among(const std::string& entry, Token token,
                              const std::vector<std::string>& children) {
  const auto entries = entries_of(children);
  const auto name = entry.substr(entry.rfind('/') + 1);
  const auto self = std::ranges::find(entries, name);
  if (self == entries.end()) {
    if (std::ranges::find(children, name) == children.end()) return {};
    throw Unavailable(entry + " is no queue entry by its name, though it was made as one");
  }
  LockClient::Place place{.is_there = true, .token = token, .before = {}};
  if (self != entries.begin()) place.before = parent_of(entry) + "/" + *std::prev(self);
  return place;
}

// What our own entries say, or nothing.
std::optional<Data> parse_data(std::string_view data) {
  const auto space = data.rfind(' ');
  if (space == data.npos) return std::nullopt;
  const auto offset = parse_decimal(data.substr(space + 1));
  const auto name = data.substr(0, space);
  const auto holder = name.empty() ? Holder{} : Holder::parse(name);
  if (!offset || !holder) return std::nullopt;
  return Data{*holder, *offset};
}

}  // namespace

LockClient::LockClient(const std::string& root, const std::string& pattern, Layout layout)
    : root_{root},
      offset_path_{root + "/offset"},
      stamp_path_{root + "/stamp"},
      path_{root, pattern},
      layout_{layout} {}

LockClient::Entry LockClient::enter(Session& session, const std::string& lock, const std::string& guid,
                                    const Holder& holder) {
  const auto name = lock + "/" + entry_name(layout_, guid);
  register_place(session);
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const auto now = offset(session);
    const auto data = fmt::format("{} {}", holder.id(), now.value);
    Entry entry{.path = {}, .offset = now.value};
    const auto made = make_entry(session, lock,
                                 {check(offset_path_, now.version),
                                  create(name, data, Mode::ephemeral_sequential), set(stamp_path_, "")},
                                 entry);
    if (made.is_ok()) return entry;
    if (made.failed == 0) {
      (void)read_offset(session);
    } else if (made.failed == 2) {
      (void)session.create(stamp_path_, "");
    } else if (made.code == Code::no_node) {
      make_lock(session, lock);
    } else {
      throw Unavailable(fmt::format("{} cannot be a lock, because it is an ephemeral node", lock));
    }
  }
  raise_contended(offset_path_);
}

// The children are asked for before the entry's answer has come: a session's calls are done in their order.
MultiAnswer LockClient::make_entry(Session& session, const std::string& lock, const std::vector<Op>& ops,
                                   Entry& entry) {
  auto making = session.begin_multi(ops);
  auto listing = session.begin_get_children(lock);
  auto made = making.get();
  if (!made.is_ok()) return made;
  entry.path = made.answers[1].path;
  entry.czxid = made.answers[2].stat.mzxid;
  try {
    entry.children = listing.get().children;
  } catch (const Unavailable&) {
    // The entry is made all the same, and a look tells where it stands.
  }
  return made;
}

// Before the first entry is made there, so that lowest_live() of every source finds it.
void LockClient::register_place(Session& session) {
  if (path_.top() == root_ + "/locks") return;
  {
    const std::scoped_lock lock{mutex_};
    if (registered_session_ == session.id()) return;
  }
  std::string name;
  for (const char c : segment_name(path_.top())) name += c == '/' ? std::string{"%2F"} : std::string{c};
  session.make_path(root_ + "/lock_paths");
  (void)session.create(root_ + "/lock_paths/" + name, path_.top());
  const std::scoped_lock lock{mutex_};
  registered_session_ = session.id();
}

void LockClient::make_lock(Session& session, const std::string& lock) {
  session.make_path(path_.top());
  session.make_path(lock, Mode::container);
}

LockClient::Place LockClient::place_of(const Entry& entry) {
  return place_among(entry.path, token_above(entry.czxid, entry.offset), *entry.children);
}

LockClient::Place LockClient::look(Session& session, const std::string& entry, Session::Watch watch) {
  auto own = session.begin_get(entry, std::move(watch));
  auto all = session.begin_get_children(parent_of(entry));
  const auto node = own.get();
  const auto children = all.get();
  if (node.code != Code::ok) return {};
  return place_among(entry, token_of(session, node), children.children);
}

bool LockClient::is_there(Session& session, const std::string& entry) {
  // Its own server may lag behind a release that was answered before.
  auto caught_up = session.begin_sync(entry);
  auto looked = session.begin_exists(entry);
  (void)caught_up.get();
  return looked.get().code == Code::ok;
}

std::vector<std::string> LockClient::find(Session& session, const std::string& lock,
                                          const std::string& guid) {
  catch_up(session);
  std::vector<std::string> found;
  const auto name = entry_name(layout_, guid);
  for (const auto& child : entries_of(session.get_children(lock).children)) {
    if (child.starts_with(name)) found.push_back(lock + "/" + child);
  }
  return found;
}

bool LockClient::confirm(Session& session, const std::string& entry) {
  // No client sets an entry's data, so its version is 0.
  return session.multi({check(entry, 0)}).is_ok();
}

bool LockClient::remove(Session& session, const std::string& entry) {
  return session.remove(entry).code == Code::ok;
}

// Nothing is written, but the leader has it committed like a write.
void LockClient::catch_up(Session& session) {
  (void)session.multi({check(offset_path_, any_version)});
}

std::optional<LockClient::Head> LockClient::head(Session& session, const std::string& lock) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    catch_up(session);
    const auto entries = entries_of(session.get_children(lock).children);
    if (entries.empty()) return std::nullopt;
    if (auto first = first_of(session, lock, entries)) return first;
  }
  raise_contended(lock);
}

// The first entry that is still there when it is read.
std::optional<LockClient::Head> LockClient::first_of(Session& session, const std::string& lock,
                                                     const std::vector<std::string>& children) {
  for (const auto& name : entries_of(children)) {
    const auto path = lock + "/" + name;
    const auto node = session.get(path);
    if (node.code != Code::ok) continue;
    const auto data = parse_data(node.data);
    return Head{path, token_of(session, node), data ? data->holder : Holder{}};
  }
  return std::nullopt;
}

Token LockClient::token_of(Session& session, const Answer& node) {
  const auto data = parse_data(node.data);
  return token_above(node.stat.czxid, data ? data->offset : read_offset(session).value);
}

LockClient::Offset LockClient::offset(Session& session) {
  {
    const std::scoped_lock lock{mutex_};
    if (offset_ && offset_session_ == session.id()) return *offset_;
  }
  return read_offset(session);
}

LockClient::Offset LockClient::read_offset(Session& session) {
  auto node = session.get(offset_path_);
  if (node.code == Code::no_node) {
    session.make_path(root_ + "/locks");
    (void)session.create(offset_path_, "0");
    node = session.get(offset_path_);
  }
  const auto value = parse_decimal(node.data);
  if (node.code != Code::ok || !value) {
    throw Unavailable(fmt::format("{} is damaged: it is a decimal number, and not '{}'", offset_path_,
                                  node.data.substr(0, 32)));
  }
  const Offset read{*value, node.stat.version, node.stat.mzxid};
  keep(session, read);
  return read;
}

void LockClient::keep(const Session& session, const Offset& offset) {
  const std::scoped_lock lock{mutex_};
  offset_ = offset;
  offset_session_ = session.id();
}

void LockClient::raise(Session& session, Token mark) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const auto now = read_offset(session);
    // Whatever is created from here on has a higher zxid than the offset's last change has.
    const auto needed = mark.value() - now.zxid + 1;
    if (now.value >= needed) return;
    (void)token_above(now.zxid, needed);
    const auto changed = session.set(offset_path_, std::to_string(needed), now.version);
    if (changed.code != Code::ok) continue;
    return keep(session, {needed, changed.stat.version, changed.stat.mzxid});
  }
  raise_contended(offset_path_);
}

Token LockClient::draw(Session& session) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const auto now = offset(session);
    const auto changed = session.set(offset_path_, std::to_string(now.value), now.version);
    if (changed.code == Code::ok) {
      keep(session, {now.value, changed.stat.version, changed.stat.mzxid});
      return token_above(changed.stat.mzxid, now.value);
    }
    (void)read_offset(session);
  }
  raise_contended(offset_path_);
}

Token LockClient::lowest_live(Session& session) {
  // Whatever was created before this is found below; what comes later has a higher token than was drawn.
  Token lowest{draw(session).value() + 1};
  lower_to_live(session, root_ + "/locks", lowest);
  const auto places = root_ + "/lock_paths";
  for (const auto& name : session.get_children(places).children) {
    const auto place = session.get(places + "/" + name);
    if (place.code == Code::ok) lower_to_live(session, place.data, lowest);
  }
  return lowest;
}

void LockClient::lower_to_live(Session& session, const std::string& top, Token& lowest) {
  walk(session, top, [&](const std::string& path, const std::vector<std::string>& children) {
    // Of one lock's entries the first has the lowest token.
    if (const auto first = first_of(session, path, children)) lowest = std::min(lowest, first->token);
    return children;
  });
}

LeasePage LockClient::list(Session& session, const FenceListing& listing) {
  catch_up(session);
  std::map<Resource, std::vector<std::string>> locks;
  std::size_t nodes = 0;
  walk(session, path_.top(), [&](const std::string& path, std::vector<std::string> children) {
    if (++nodes > list_nodes_max) {
      throw Unavailable(
          fmt::format("leases are found by a look at every node below {}, and there are more than {}: list "
                      "those of a longer prefix, or ask for one by its name",
                      path_.top(), list_nodes_max));
    }
    const auto resource = path_.resource_of(path);
    if (resource && listing.names(*resource)) locks.emplace(*resource, entries_of(children));
    std::erase_if(children, [&](const std::string& child) {
      return !path_.may_be_above(path + "/" + child, listing.prefix);
    });
    return children;
  });
  LeasePage page;
  for (const auto& [resource, entries] : locks) {
    const auto first = first_of(session, path_.of(resource), entries);
    if (first && !page.take({{resource, first->token, {}, {}}, std::nullopt}, listing)) break;
  }
  return page;
}

}  // namespace fenceguard::zookeeper
