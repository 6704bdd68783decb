# frozen_string_literal: true

require "fileutils"
require "open3"
require "tmpdir"

require_relative "serving"

# Servers that the binary starts, each in its own folder.
module Commands
  include Serving

  BINARY = ENV.fetch("THRUWAY", File.expand_path("../../target/debug/thruway", __dir__))
  HELLO = <<~'RUBY'
    run ->(env) { [200, {}, ["#{Process.pid} #{env["rack.multiprocess"]}"]] }
  RUBY

  def setup
    @folder = Dir.mktmpdir
    @pids = []
  end

  def teardown
    @pids.each do |pid|
      Process.kill("KILL", pid)
      Process.wait(pid)
    rescue Errno::ESRCH, Errno::ECHILD
      nil
    end
    super
    FileUtils.rm_rf(@folder)
  end

  def write(name, text)
    path = File.join(@folder, name)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, text)
    path
  end

  # Starts the server, by the command `by` if given, and waits until it serves. Returns its process
  # number.
  def start(*arguments, target: @folder, port: %w[-p 0], by: [])
    @log = File.join(@folder, "log")
    out, said = IO.pipe
    pid = spawn(*by, BINARY, "serve", target, *port, *mode_words, *arguments, out: said, err: @log)
    said.close
    @pids << pid
    line = Timeout.timeout(PATIENCE_SECONDS) { out.gets } or flunk(File.read(@log))
    assert_match(/\Aserving .* on .* \(ready in \d+ ms\)$/, line)
    @address = line[%r{on ((http|unix)://[^ ,]+)}, 1]
    pid
  end

  # The options of the command for the mode in which requests run.
  def mode_words
    mode.slice(:fibers, :waiting_threads).flat_map do |name, count|
      ["--#{name.to_s.tr("_", "-")}", count.to_s]
    end
  end

  def stop(pid, signal = "TERM")
    Process.kill(signal, pid)
    Timeout.timeout(PATIENCE_SECONDS) { Process.wait2(pid).last }
  end

  # Whether new connections are refused, as from some time on while a server drains.
  def refused?
    connect.io.close
    false
  rescue Errno::ECONNREFUSED, Errno::ENOENT
    true
  end

  # Stops all threads of a process, which the signal reaches one by one.
  def suspend(pid)
    Process.kill("STOP", pid)
    stats = -> { Dir["/proc/#{pid}/task/*/stat"] }
    eventually { stats.call.all? { |stat| File.read(stat)[/.*\) (\w)/, 1] == "T" } }
  end

  # Returns the error output of a server that must not start. A server that does start is stopped.
  def refusal(*arguments)
    _, said, status = Open3.capture3("timeout", PATIENCE_SECONDS.to_s, BINARY, "serve", *arguments)
    assert_equal 2, status.exitstatus, said
    said
  end
end
