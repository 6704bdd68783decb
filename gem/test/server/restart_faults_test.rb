# frozen_string_literal: true

require_relative "../restarting"

# Processes that are killed, and signals that arrive, in each phase of a restart.
class RestartFaultsTest < Minitest::Test
  include Restarting

  # Code that waits while it is loaded, as long as a file exists.
  GATED = <<~'RUBY'
    File.write("booting", "#{Process.pid}") if File.exist?("gate")
    sleep 0.01 while File.exist?("gate")
    version = File.read("version")
    run ->(env) {
      if env["PATH_INFO"] == "/held"
        File.write("held", "")
        sleep 0.01 until File.exist?("go")
      end
      [200, {}, ["#{version} #{Process.pid}"]]
    }
  RUBY

  # Code that waits in the same way, in a worker that is forked from a warm worker.
  GATED_REFORK = <<~'RUBY'
    after_refork do
      File.write("booting", "#{Process.pid}") if File.exist?("gate")
      sleep 0.01 while File.exist?("gate")
    end
  RUBY

  def start_gated(*arguments, configuration: "")
    write("config.ru", GATED)
    write("version", "v1")
    write("config/puma.rb", configuration)
    start(*arguments, "-t", "2")
  end

  def path(name) = File.join(@folder, name)

  # Returns the process that waits at the gate.
  def booting
    eventually { File.size?(path("booting")) }
    File.read(path("booting")).to_i
  end

  def gone?(pid)
    Process.kill(0, pid)
    false
  rescue Errno::ESRCH
    true
  end

  def test_a_trial_that_is_killed_changes_nothing
    [%w[-w 2], []].each do |arguments|
      pid = start_gated(*arguments)
      write("gate", "")
      write("version", "v2")
      logged("hot restart stopped: the trial failed") do
        Process.kill("USR2", pid)
        Process.kill("KILL", booting)
      end
      File.delete(path("gate"))
      assert_equal "v1", version_and_pid.first
      restart(pid, "USR2", arguments.any? && "hot restart", to: "v2")
      assert_predicate stop(pid), :success?
      File.delete(path("booting"))
    end
  end

  def niceness(pid) = File.read("/proc/#{pid}/stat")[/\).*/].split[17].to_i

  def test_a_trial_gives_way_to_the_workers_and_the_next_server_does_not
    [%w[-w 1], []].each do |arguments|
      pid = start_gated(*arguments)
      write("gate", "")
      Process.kill("USR2", pid)
      trial = booting
      # No process gives way by more than 19.
      eventually { niceness(trial) == [niceness(pid) + 5, 19].min }
      write("version", "v2")
      File.delete(path("gate"))
      version = served = nil
      eventually { (version, served = version_and_pid) && version == "v2" }
      assert_equal niceness(Process.pid), niceness(served)
      assert_predicate stop(pid), :success?
      File.delete(path("booting"))
    end
  end

  def test_term_during_a_trial_ends_that_as_well
    [%w[-w 2], []].each do |arguments|
      pid = start_gated(*arguments)
      write("gate", "")
      Process.kill("USR2", pid)
      trial = booting
      assert_predicate stop(pid), :success?
      eventually { gone?(trial) }
      %w[gate booting].each { |name| File.delete(path(name)) }
    end
  end

  def test_an_old_worker_that_is_killed_in_its_last_request_is_missed_by_its_client_alone
    pid = start_gated("-w", "1")
    crowd = Crowd.new(4) { connect }
    crowd.ask_more(3)
    held = connect.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
    eventually { File.exist?(path("held")) }
    old = worker_pids(pid).first
    restart(pid, "USR2", "hot restart", to: "v2")
    # Until the old worker has handed its connections on, they would miss the new version as well.
    eventually { crowd.responses.all? { |bodies| bodies.last.start_with?("v2") } }
    Process.kill("KILL", old)
    assert_predicate held, :closed?
    eventually { gone?(old) }
    crowd.ask_more(3)
    crowd.end
    assert_empty(crowd.errors.size.times.map { crowd.errors.pop })
    assert_equal ["v2"], crowd.responses.map { |bodies| bodies.last[0, 2] }.uniq
    write("go", "")
    assert_predicate stop(pid), :success?
  end

  def test_a_new_worker_that_is_killed_while_the_next_one_boots_is_replaced
    pid = start_gated("-w", "2", configuration: <<~'RUBY')
      preload_app! false
      before_worker_boot do |index|
        File.write("booting", "#{Process.pid}") if index == 1 && File.exist?("second")
        sleep 0.01 while index == 1 && File.exist?("second")
      end
    RUBY
    old = worker_pids(pid)
    write("second", "")
    write("version", "v2")
    Process.kill("USR1", pid)
    second = booting
    first, = worker_pids(pid) - [second, *old]
    logged("ended (signal KILL)") { Process.kill("KILL", first) }
    logged("phased restart: done") { File.delete(path("second")) }
    eventually { (worker_pids(pid) & [first, *old]).empty? && worker_pids(pid).size == 2 }
    6.times { assert_equal "v2", version_and_pid.first }
    assert_predicate stop(pid), :success?
  end

  def worker_title(process) = File.read("/proc/#{process}/cmdline")

  def test_a_template_that_is_killed_while_its_children_boot_stops_no_refork
    pid = start_gated("-w", "2", configuration: GATED_REFORK)
    write("gate", "")
    Process.kill("URG", pid)
    child = booting
    # The child has no other title yet.
    processes = worker_pids(pid) - [child]
    template = processes.find { |one| worker_title(one).include?("template") }
    # If the template had no time to report the child, the child has ended, and another takes its
    # place. In this case, the refork may be done before the gate opens.
    logged("refork: done") do
      logged("the refork template has exited") { Process.kill("KILL", template) }
      File.delete(path("gate"))
    end
    6.times { assert_equal 200, get.status }
    assert_predicate stop(pid), :success?
  end

  def test_a_supervisor_that_is_killed_in_a_restart_leaves_no_process
    pid = start_gated("-w", "2", configuration: "preload_app! false\n")
    write("gate", "")
    Process.kill("USR1", pid)
    left = [booting, *worker_pids(pid)].uniq
    Process.kill("KILL", pid)
    File.delete(path("gate"))
    left.each { |process| eventually { gone?(process) } }
  end
end
