# frozen_string_literal: true

require_relative "commands"

# Servers that restart, and clients that would notice an interruption.
module Restarting
  include Commands

  # An application that responds with the version of its code at the time of loading.
  VERSIONED = <<~'RUBY'
    raise "it does not boot" if File.exist?("broken")
    version = File.read("version")
    run ->(env) {
      File.write("slow", "") && sleep(0.3) if env["PATH_INFO"] == "/slow"
      [200, {}, ["#{version} #{Process.pid}"]]
    }
  RUBY

  # Clients that send requests without a pause, on connections that they keep.
  class Crowd
    attr_reader :responses, :errors

    def initialize(count)
      @goes_on = true
      @responses = Array.new(count) { [] }
      @errors = Queue.new
      @threads = Array.new(count) { |number| Thread.new { ask(number, yield) } }
    end

    # Waits until each client has got this many more responses.
    def ask_more(count)
      before = @responses.map(&:size)
      Timeout.timeout(Serving::PATIENCE_SECONDS) do
        sleep 0.01 until @errors.size.positive? || grown?(before, count)
      end
    end

    def end
      @goes_on = false
      @threads.each { |thread| thread.join(Serving::PATIENCE_SECONDS) }
    end

    private

    def grown?(before, count)
      before.zip(@responses).all? { |size, responses| responses.size >= size + count }
    end

    def ask(number, client)
      while @goes_on
        response = client.request
        @responses[number] << response.body
        @errors << response.status unless response.status == 200
      end
    rescue SystemCallError, EOFError, NoMethodError => e
      @errors << e
    end
  end

  def start_version(version, *arguments)
    write("config.ru", VERSIONED)
    write("version", version)
    start(*arguments, "-t", "2")
  end

  # Prints the server's log if a test has failed.
  def teardown
    warn "The log:\n#{log}" if @log && failures.any?
    super
  end

  def log = File.read(@log)

  # Runs the block, and waits for one more line with the text.
  def logged(text)
    before = log.scan(text).size
    yield
    eventually { log.scan(text).size > before }
  end

  def restart(pid, signal, name, to: nil)
    write("version", to) if to
    return restart_alone(pid, to) unless name

    logged("#{name}: done") { Process.kill(signal, pid) }
    await_version(to) if to
  end

  # Waits until new connections reach the version. After a hot restart, a worker of the previous
  # server may accept one more until it learns that it must retire.
  def await_version(version)
    eventually { Array.new(5) { get.body }.all? { |body| body.start_with?(version) } }
  end

  # Restarts a server of one process, which prints no line. A response shows that the server has
  # restarted.
  def restart_alone(pid, version)
    Process.kill("USR2", pid)
    eventually { get.body.start_with?(version) }
  end

  def version_and_pid = get.body.split.then { |version, pid| [version, pid.to_i] }

  def worker_pids(pid)
    File.read("/proc/#{pid}/task/#{pid}/children").split.map(&:to_i)
  end
end
