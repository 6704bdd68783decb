# frozen_string_literal: true

require_relative "../restarting"

# Signals at each moment of a start, of a restart and of a stop. A gate holds each moment: a process
# reports that it has arrived, and waits until a file disappears.
class RestartSignalsTest < Minitest::Test
  include Restarting

  ORDERS = %w[HUP USR1 USR2 PWR TTIN TTOU URG CHLD WINCH CONT].freeze
  KINDS = [[], %w[-w 2]].freeze

  # Code that runs after Ruby's start and before all other code of the server.
  EARLY = <<~'RUBY'
    # A child of a trial, or of the application, is another process.
    if File.exist?("early") && (!File.exist?("pid") || File.read("pid").to_i == Process.pid)
      File.write("at early", "")
      sleep 0.005 while File.exist?("early")
    end
  RUBY

  # An application that waits while it boots in the server's process, and not in a trial.
  BOOTING = <<~'RUBY'
    if File.exist?("boot") && File.read("pid").to_i == Process.pid
      File.write("at boot", "")
      sleep 0.005 while File.exist?("boot")
    end
    version = File.read("version")
    ignored = `grep SigIgn /proc/self/status`[/\h{16}/]
    run ->(env) {
      if env["PATH_INFO"] == "/ignored"
        now = `grep SigIgn /proc/self/status`[/\h{16}/]
        [200, {}, ["#{ignored} #{now}"]]
      else
        [200, {}, ["#{version} #{Process.pid}"]]
      end
    }
  RUBY

  def path(name) = File.join(@folder, name)

  def start_gated(*arguments, configuration: "")
    write("early.rb", EARLY)
    write("config.ru", BOOTING)
    write("version", "v1")
    write("config/puma.rb", "pidfile 'pid'\n#{configuration}")
    # Paths of `-r` are searched for in the load path.
    @by = ["env", "-C", @folder, "RUBYOPT=-r#{path("early")}"]
    start(*arguments, "-t", "2", by: @by)
  end

  def hold(*moments) = moments.each { |moment| write(moment, "") }

  def at?(moment) = File.exist?(path("at #{moment}"))

  def pass(*moments)
    moments.each { |moment| [moment, "at #{moment}"].each { |name| FileUtils.rm_f(path(name)) } }
  end

  def await(moment) = eventually { at?(moment) }

  def restart_up_to(pid, moment, version)
    write("version", version)
    hold(moment)
    Process.kill("USR2", pid)
    await(moment)
  end

  def serves?(version) = Array.new(4) { get.body }.all? { |body| body.start_with?(version) }

  def done = log.scan("hot restart: done").size

  def test_no_signal_at_any_moment_of_a_restart_ends_the_server
    KINDS.each do |arguments|
      pid = start_gated(*arguments)
      crowd = Crowd.new(2) { connect }
      crowd.ask_more(1)
      hold("early", "boot")
      write("version", "v2")
      Process.kill("USR2", pid)
      %w[early boot].each do |moment|
        eventually { ORDERS.each { |name| Process.kill(name, pid) } && at?(moment) }
        ORDERS.each { |name| Process.kill(name, pid) }
        pass(moment)
      end
      eventually { serves?("v2") }
      crowd.ask_more(2)
      crowd.end
      assert_empty(crowd.errors.size.times.map { crowd.errors.pop })
      assert_predicate stop(pid), :success?
      refute_path_exists path("pid")
    end
  end

  def test_each_signal_alone_at_each_moment_of_a_restart_ends_nothing
    pid = start_gated("-w", "1")
    number = 0
    %w[early boot].product(ORDERS).each do |moment, name|
      restart_up_to(pid, moment, "v#{number += 1}")
      Process.kill(name, pid)
      before = done
      pass(moment)
      eventually { serves?("v#{number}") && done > before }
      next unless name == "USR2"

      eventually { done == before + 2 }
    end
    assert_predicate stop(pid), :success?
  end

  def test_what_is_asked_for_in_a_restart_is_done_once
    %w[early boot].each do |moment|
      pid = start_gated("-w", "1", configuration: "stdout_redirect nil, 'err', true\n")
      @log = path("err")
      restart_up_to(pid, moment, "v2")
      %w[TTIN URG].each { |name| Process.kill(name, pid) }
      File.rename(path("err"), path("err.1"))
      Process.kill("HUP", pid)
      pass(moment)
      # The files are reopened before or after the refork.
      said = -> { File.read(path("err.1")) + log }
      eventually { File.file?(path("err")) && said.call.include?("refork: done") }
      # Two workers, and their template.
      eventually { worker_pids(pid).size == 3 }
      said = said.call
      assert_equal 1, said.scan("refork: done").size
      assert_equal %w[2], said.scan(/number of workers is now (\d)/).flatten
      assert_predicate stop(pid), :success?
      %w[err err.1].each { |name| File.delete(path(name)) }
    end
  end

  def test_a_restart_that_is_asked_for_in_one_begins_when_that_is_over
    pid = start_gated("-w", "1")
    restart_up_to(pid, "boot", "v2")
    3.times { Process.kill("USR2", pid) }
    write("version", "v3")
    pass("boot")
    eventually { done == 2 && serves?("v3") }
    assert_equal 2, log.scan("trying the command").size
    assert_predicate stop(pid), :success?
  end

  def test_term_at_each_moment_of_a_restart_stops_the_server_in_good_order
    KINDS.product(%w[TERM INT QUIT]).each do |arguments, name|
      pid = start_gated(*arguments)
      client = connect
      client.request
      restart_up_to(pid, "early", "v2")
      Process.kill(name, pid)
      pass("early")
      status = Timeout.timeout(PATIENCE_SECONDS) { Process.wait2(pid).last }
      assert_predicate status, :success?, name
      refute_path_exists path("pid")
      assert_raises(Errno::ECONNREFUSED) { connect }
    end
  end

  def test_term_while_the_next_server_boots_stops_it
    KINDS.each do |arguments|
      pid = start_gated(*arguments)
      restart_up_to(pid, "boot", "v2")
      Process.kill("TERM", pid)
      # Workers serve meanwhile; a single process ends at once.
      pass("boot") if arguments.any?
      status = Timeout.timeout(PATIENCE_SECONDS) { Process.wait2(pid).last }
      assert_predicate status, :success? if arguments.any?
      refute_path_exists path("pid")
      assert_raises(Errno::ECONNREFUSED) { connect }
      pass("boot")
    end
  end

  def test_no_signal_before_the_first_trap_ends_a_server_that_starts
    KINDS.each do |arguments|
      hold("early")
      starter = Thread.new { start_gated(*arguments) }
      await("early")
      ORDERS.each { |name| Process.kill(name, @pids.last) }
      pass("early")
      pid = starter.value
      assert serves?("v1")
      assert_predicate stop(pid), :success?
    end
  end

  def test_a_storm_of_restarts_ends_with_the_last
    pid = start_gated("-w", "1")
    write("version", "v2")
    6.times do
      before = log.scan("trying the command").size
      eventually do
        Process.kill("USR2", pid)
        log.scan("trying the command").size > before
      end
    end
    write("version", "v3")
    Process.kill("USR2", pid)
    eventually { serves?("v3") }
    assert_predicate stop(pid), :success?
  end

  def test_what_the_application_starts_inherits_no_ignored_signal
    KINDS.each do |arguments|
      pid = start_gated(*arguments)
      own = File.read("/proc/self/status")[/SigIgn:\s*(\h+)/, 1]
      2.times do |round|
        assert_equal [own, own], get("/ignored").body.split
        write("version", "r#{round}")
        Process.kill("USR2", pid)
        eventually { serves?("r#{round}") }
      end
      assert_predicate stop(pid), :success?
    end
  end

  # While the next server boots, the application may start a Ruby that loads the gem.
  def test_another_process_with_the_variable_of_a_restart_keeps_its_signals
    command = %w[ruby -Itarget/debug/gem -Igem/lib -e]
    script = 'require "thruway"; print %w[HUP TERM].map { |name| trap(name, "DEFAULT") }'
    said, status = Open3.capture2({ "THRUWAY_INHERITANCE" => "#{Process.pid}:" }, *command, script,
                                  chdir: File.expand_path("../../..", __dir__))
    assert_predicate status, :success?
    assert_equal '["DEFAULT", "DEFAULT"]', said
  end

  def test_a_worker_that_is_retired_while_it_boots_ends
    write("boot worker", "")
    pid = start_gated("-w", "1", configuration: <<~'RUBY')
      before_worker_boot do |index|
        if index == 1
          File.write("at worker", Process.pid.to_s)
          sleep 0.005 while File.exist?("boot worker")
        end
      end
    RUBY
    Process.kill("TTIN", pid)
    eventually { File.size?(path("at worker")) }
    booting = File.read(path("at worker")).to_i
    logged("number of workers is now 1") { Process.kill("TTOU", pid) }
    eventually { !worker_pids(pid).include?(booting) }
    assert_predicate stop(pid), :success?
  end
end
