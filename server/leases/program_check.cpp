#include "server/leases/program_check.hpp"

#include <fmt/format.h>

#include <exception>

namespace fenceguard {
namespace {

// For a look at all processes of the machine.
constexpr std::chrono::seconds look_max{10};

std::string objection_to_any_of(const std::vector<net::Process>& processes,
                                const ProgramCheck::Tenure& tenure) {
  if (processes.empty()) return "the sidecar cannot see which process connects";
  for (const auto& process : processes) {
    if (tenure.program) {
      if (net::descends_from(process, *tenure.program)) continue;
      return fmt::format("process {} is neither the one of --hold-for, {}, nor below it", process.id,
                         tenure.program->id);
    }
    const auto since = net::memory_begun(process);
    if (!since) return fmt::format("the sidecar cannot see what process {} was forked from", process.id);
    if (*since < tenure.begun) return fmt::format("process {} began before the lease was taken", process.id);
  }
  return {};
}

}  // namespace

ProgramCheck::ProgramCheck() : thread_{[this](const std::stop_token& stop) { run(stop); }} {}

net::Task<std::string> ProgramCheck::objection_to(net::Loop& loop, int socket, Tenure tenure) {
  const auto wait = std::make_shared<Wait>(loop);
  wait->timer.expires_after(look_max);
  {
    const std::scoped_lock lock{mutex_};
    questions_.push_back({net::PeerEnd{socket}, tenure, loop.weak_from_this(), wait});
  }
  changed_.notify_one();
  (void)co_await wait->timer.async_wait(net::as_result);
  co_return wait->answer.value_or("the sidecar could not look at the machine's processes in time");
}

void ProgramCheck::answer(const Question& question, const std::string& objection) {
  const auto loop = question.loop.lock();
  if (!loop) return;
  loop->post([weak = question.wait, objection] {
    const auto wait = weak.lock();
    if (!wait) return;
    wait->answer = objection;
    wait->timer.cancel();
  });
}

void ProgramCheck::run(const std::stop_token& stop) {
  for (;;) {
    std::vector<Question> questions;
    {
      std::unique_lock lock{mutex_};
      if (!changed_.wait(lock, stop, [this] { return !questions_.empty(); })) return;
      questions.swap(questions_);
    }
    try {
      std::vector<net::PeerEnd> ends;
      ends.reserve(questions.size());
      for (const auto& question : questions) ends.push_back(question.end);
      const auto found = net::find_processes(ends);
      for (std::size_t i = 0; i < questions.size(); ++i)
        answer(questions[i], objection_to_any_of(found[i], questions[i].tenure));
    } catch (const std::exception&) {
      // Out of memory, most likely: a question without an answer is a no at its limit.
    }
  }
}

}  // namespace fenceguard
