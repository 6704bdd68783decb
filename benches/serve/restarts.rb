# frozen_string_literal: true

# What clients notice of restarts: 200 connections ask all the time, and the server restarts ten
# times. A table on stdout has failed requests, and p99 without restarts and with them.
#
#   ruby benches/serve/restarts.rb [RATE]     # after cargo x gem --release
#
# RATE is in requests a second, of all connections.

require "fileutils"
require "json"
require "socket"
require "timeout"
require "tmpdir"

BINARY = File.expand_path("../../target/release/thruway", __dir__)
RATE = (ARGV[0] || 300).to_i
CONNECTIONS = 200
RESTARTS = 10
BEFORE_SECONDS = 5
# Enough for ten restarts; what is left of it is without one.
DURING_SECONDS = 25
BOOT_SECONDS = 60
KINDS = { "hot" => ["USR2", "hot restart", ""],
          "phased" => ["USR1", "phased restart", "preload_app! false\n"] }.freeze

# A server in a folder of its own.
class Server
  attr_reader :url

  def initialize(folder, workers, configuration)
    @log = File.join(folder, "log")
    write(folder, configuration)
    out, said = IO.pipe
    @pid = spawn(BINARY, "serve", folder, "-p", "0", "-w", workers.to_s, "-t", "5",
                 "-e", "production", out: said, err: @log)
    said.close
    line = Timeout.timeout(BOOT_SECONDS) { out.gets } or abort(File.read(@log))
    @url = line[%r{http://[^ ,]+}].sub("0.0.0.0", "127.0.0.1")
  end

  def write(folder, configuration)
    shapes = File.expand_path("shapes.rb", __dir__)
    File.write(File.join(folder, "config.ru"), "require #{shapes.dump}\nrun Shapes.new\n")
    FileUtils.mkdir_p(File.join(folder, "config"))
    File.write(File.join(folder, "config/puma.rb"), configuration)
  end

  # Whether it ended well, and how long it took.
  def restart(signal, name)
    before = File.read(@log).scan("#{name}: done").size
    begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    Process.kill(signal, @pid)
    Timeout.timeout(BOOT_SECONDS) do
      sleep 0.01 until File.read(@log).scan("#{name}: done").size > before
    end
    Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
  end

  def stop
    Process.kill("TERM", @pid)
    Process.wait(@pid)
  end
end

# The report of a load for so many seconds, while the block runs.
def load_for(seconds, url)
  command = [BINARY, "load", "#{url}/page", "-c", CONNECTIONS.to_s, "-d", seconds.to_s,
             "--rate", RATE.to_s, "--arrivals", "poisson", "--json"]
  IO.popen(command) do |io|
    yield if block_given?
    JSON.parse(io.read)
  end
end

def failures(report)
  total = report.fetch("total")
  statuses = total.fetch("status").reject { |status, _| status.start_with?("2") }
  total.fetch("errors").values.sum + statuses.values.sum
end

def p99_ms(report) = report.dig("total", "latency", "p99_ns") / 1e6

version = `ruby -v`[/\d+\.\d+\.\d+/]
puts "Ruby #{version}, #{CONNECTIONS} connections, #{RATE} requests/s, #{RESTARTS} restarts"
columns = ["restart", "workers", "requests", "failed", "p99 before, ms", "p99 during, ms", "÷",
           "one restart, s"]
puts "| #{columns.join(" | ")} |"
puts "| --- | --- | --- | --- | --- | --- | --- | --- |"
KINDS.each do |kind, (signal, name, configuration)|
  [2, 4].each do |workers|
    Dir.mktmpdir do |folder|
      server = Server.new(folder, workers, configuration)
      load_for(1, server.url)
      before = load_for(BEFORE_SECONDS, server.url)
      times = []
      during = load_for(DURING_SECONDS, server.url) do
        sleep 0.5
        RESTARTS.times { times << server.restart(signal, name) }
      end
      server.stop
      cells = [kind, workers, during.dig("total", "requests"), failures(before) + failures(during),
               p99_ms(before).round(1), p99_ms(during).round(1),
               (p99_ms(during) / p99_ms(before)).round(2), times.sort[times.size / 2].round(2)]
      puts "| #{cells.join(" | ")} |"
      $stdout.flush
    end
  end
end
