#pragma once

// History: what services did under their claims, each write as a node of its own whose number tells the order
// in which they took effect, and a counter that each raises by one after a fenced read. At the end the data
// itself says whether the guarantees held.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "guard/error.hpp"
#include "tests/zookeeper/guard/space.hpp"

namespace fenceguard::test {

class History {
 public:
  History(Space& space, std::vector<std::string> resources)
      : space_{space}, resources_{std::move(resources)} {
    for (const auto& name : resources_) {
      const auto session = space.session();
      session->make_path(log_of(name));
      (void)session->create(counter_of(name), "0");
    }
  }

  // One take-over or one more write of a holder: a fenced read of the counter, then the write. text is the
  // write's own, different from all others.
  void act(zookeeper::Guard& guard, const Claim& claim, const std::string& text) {
    const auto& name = claim.resource.name();
    try {
      const auto seen = guard.read(claim, counter_of(name));
      if (!seen.answer) return note(refused_, text);
      const auto value = std::to_string(std::stoi(seen.answer->data) + 1);
      const auto line = fmt::format("{} {} {}", claim.token.value(), claim.holder.id(), text);
      const auto written = guard.write(
          claim, {zookeeper::set(counter_of(name), value),
                  zookeeper::create(log_of(name) + "/", line, zookeeper::Mode::persistent_sequential)});
      note(written.took_effect() ? acknowledged_ : refused_, text);
    } catch (const OutcomeUnknown&) {
      note(unknown_, text);
    } catch (const Unavailable&) {
      note(unavailable_, text);
    }
  }

  [[nodiscard]] std::size_t acknowledged() {
    const std::scoped_lock lock{mutex_};
    return acknowledged_.size();
  }
  [[nodiscard]] std::size_t unknown() {
    const std::scoped_lock lock{mutex_};
    return unknown_.size();
  }
  [[nodiscard]] std::size_t refused() {
    const std::scoped_lock lock{mutex_};
    return refused_.size();
  }

  // G1: tokens never fall. G2: one holder to a number. G3: no update is lost. G4: what was acknowledged is
  // there, and what was refused or unavailable is not.
  void verify() {
    const std::scoped_lock lock{mutex_};
    std::set<std::string> found;
    for (const auto& name : resources_) verify_one(name, found);
    for (const auto& text : acknowledged_)
      EXPECT_TRUE(found.contains(text)) << text << " was acknowledged and is lost";
    for (const auto& text : refused_)
      EXPECT_FALSE(found.contains(text)) << text << " was refused and took effect";
    for (const auto& text : unavailable_)
      EXPECT_FALSE(found.contains(text)) << text << " was unavailable and took effect";
    for (const auto& text : found)
      EXPECT_TRUE(acknowledged_.contains(text) || unknown_.contains(text)) << text;
  }

 private:
  [[nodiscard]] std::string log_of(const std::string& name) const { return space_.data("log-" + name); }
  [[nodiscard]] std::string counter_of(const std::string& name) const {
    return space_.data("counter-" + name);
  }

  void note(std::set<std::string>& ending, const std::string& text) {
    const std::scoped_lock lock{mutex_};
    ending.insert(text);
  }

  void verify_one(const std::string& name, std::set<std::string>& found) {
    const auto count = space_.get(counter_of(name)).data;
    const auto session = space_.session();
    auto children = session->get_children(log_of(name)).children;
    std::ranges::sort(children);
    std::int64_t highest = 0;
    std::map<std::int64_t, std::string> holders;
    for (const auto& child : children) {
      std::istringstream words{session->get(log_of(name) + "/" + child).data};
      std::int64_t token = 0;
      std::string holder, text;
      words >> token >> holder >> text;
      EXPECT_GE(token, highest) << name << ": " << text << " is a stale write";
      highest = std::max(highest, token);
      EXPECT_EQ(holders.emplace(token, holder).first->second, holder) << name << ": two holders of " << token;
      found.insert(text);
    }
    EXPECT_EQ(count, std::to_string(children.size())) << name << ": an update was lost";
    EXPECT_GE(space_.fence(Resource{name}).highest(), highest);
  }

  Space& space_;
  const std::vector<std::string> resources_;
  std::mutex mutex_;  // guards the following
  std::set<std::string> acknowledged_, refused_, unavailable_, unknown_;
};

// Tokens as a source gives them out, now and then one number twice, as after a failover.
class Numbers {
 public:
  [[nodiscard]] std::int64_t draw(std::mt19937& random) {
    return random() % 16 == 0 ? next_.load() : next_++;
  }
  [[nodiscard]] std::int64_t next() const { return next_; }
  // What was drawn is below what is next, also where it was a number that is given out again.
  void skip() { ++next_; }

 private:
  std::atomic<std::int64_t> next_{1};
};

}  // namespace fenceguard::test
