# frozen_string_literal: true

# Measures the savings of `refork`: the memory of four workers of the Rails example after 2,000
# requests, and then the requests a second, and their cost. Rounds without and with it alternate.
#
#   ruby benches/serve/refork.rb [ROUNDS]     # after cargo x gem --release

require "etc"
require "json"
require "timeout"
require "tmpdir"

ROOT = File.expand_path("../..", __dir__)
BINARY = File.join(ROOT, "target/release/thruway")
APPLICATION = File.join(ROOT, "examples/rails_app")
REQUESTS = 2000
WORKERS = 4
WAIT_SECONDS = 60
LOAD_SECONDS = 5

def start(log)
  out, said = IO.pipe
  words = ["-p", "0", "-w", WORKERS.to_s, "-t", "5", "-e", "production"]
  pid = spawn({ "SECRET_KEY_BASE" => "none" }, BINARY, "serve", APPLICATION, *words,
              out: said, err: log)
  said.close
  line = Timeout.timeout(WAIT_SECONDS) { out.gets } or abort(File.read(log))
  [pid, line[%r{http://[^ ,]+}].sub("0.0.0.0", "127.0.0.1")]
end

def load(url, *limit)
  command = [BINARY, "load", "#{url}/#{ENV.fetch("PAGE", "")}", "-c", "16", *limit, "--json"]
  report = JSON.parse(IO.popen(command, &:read)).fetch("total")
  is_whole = report.fetch("failed").zero? && report.fetch("errors").empty?
  abort("failed requests: #{report}") unless is_whole
  report.fetch("requests_per_second")
end

def pss_mb(pid) = File.read("/proc/#{pid}/smaps_rollup")[/^Pss:\s+(\d+)/, 1].to_i / 1024.0

# Of the workers, and of all processes.
def memory_mb(pid)
  children = File.read("/proc/#{pid}/task/#{pid}/children").split.map(&:to_i)
  workers = children.select { |child| File.read("/proc/#{child}/cmdline").include?(": worker") }
  abort("there are #{workers.size} workers") unless workers.size == WORKERS
  [workers.sum { |worker| pss_mb(worker) }, [pid, *children].sum { |process| pss_mb(process) }]
end

# The processor time that the processes have used, in seconds.
def cpu_seconds(pids)
  ticks = pids.sum { |pid| File.read("/proc/#{pid}/stat")[/\).*/].split[12, 2].sum(&:to_i) }
  ticks.to_f / Etc.sysconf(Etc::SC_CLK_TCK)
end

# Requests a second, and milliseconds of processor time for each.
def speed(pid, url)
  workers = File.read("/proc/#{pid}/task/#{pid}/children").split
  before = cpu_seconds(workers)
  rate = load(url, "-d", LOAD_SECONDS.to_s)
  [rate, (cpu_seconds(workers) - before) * 1000 / (rate * LOAD_SECONDS)]
end

def refork(pid, log)
  Process.kill("URG", pid)
  Timeout.timeout(WAIT_SECONDS) { sleep 0.05 until File.read(log).include?("refork: done") }
  sleep 1
end

def measure(reforks)
  Dir.mktmpdir do |folder|
    log = File.join(folder, "log")
    pid, url = start(log)
    load(url, "-n", (REQUESTS / 2).to_s)
    refork(pid, log) if reforks
    load(url, "-n", (REQUESTS / 2).to_s)
    memory = memory_mb(pid)
    speed = speed(pid, url)
    Process.kill("TERM", pid)
    Process.wait(pid)
    [*memory, *speed]
  end
end

def cells(row) = row.map { |value| value.round(value < 10 ? 1 : 0) }.join(" | ")

def median(rows) = rows.transpose.map { |values| values.sort[values.size / 2] }

rounds = (ARGV[0] || 3).to_i
rows = { "without" => [], "with refork" => [] }
rounds.times { rows.each { |name, list| list << measure(name == "with refork") } }
puts "Ruby #{`ruby -v`[/\d+\.\d+\.\d+/]}, #{WORKERS} workers, medians of #{rounds} rounds"
puts "| | PSS of the workers, MiB | PSS of all processes, MiB | requests/s | CPU ms a request |"
puts "| --- | --- | --- | --- | --- |"
medians = rows.transform_values { |list| median(list) }
medians.each { |name, row| puts "| #{name} | #{cells(row)} |" }
without, with = medians.values
puts "| ÷ | #{with.zip(without).map { |one, other| (one / other).round(2) }.join(" | ")} |"
