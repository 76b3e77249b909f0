#include "bench/side_by_side.hpp"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <stdexcept>

namespace fenceguard::bench {
namespace {

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return text + "'";
}

}  // namespace

double sum_of(int copies, const std::vector<std::string>& words) {
  std::string line = "exec";
  for (const auto& word : words) line += ' ' + quoted(word);
  std::vector<FILE*> running;
  for (int i = 0; i < copies; ++i) running.push_back(popen(line.c_str(), "r"));
  double sum = 0;
  bool is_well = true;
  for (auto* one : running) {
    double number = 0;
    is_well = one != nullptr && fscanf(one, "%lf", &number) == 1 && is_well;
    sum += number;
  }
  for (auto* one : running) is_well = one != nullptr && pclose(one) == 0 && is_well;
  if (!is_well) throw std::runtime_error{"this failed: " + line};
  return sum;
}

double sum_of_workers(int copies, std::vector<std::string> words) {
  words.insert(words.begin(), {"/proc/self/exe", "--worker"});
  // The link is the shell's own by the time that it is followed.
  char path[4096];
  const auto size = readlink(words[0].c_str(), path, sizeof path);
  if (size <= 0) throw std::runtime_error{"this program is not to be found"};
  words[0].assign(path, static_cast<std::size_t>(size));
  return sum_of(copies, words);
}

void print_rates(const std::string& name, const Sides& sides, const std::string& target) {
  print({name, fmt::format("{:.2f}", sides.ratio.median), fmt::format("{:.0f}/s", sides.ours),
         fmt::format("{:.0f}/s", sides.other), target, sides});
}

}  // namespace fenceguard::bench
