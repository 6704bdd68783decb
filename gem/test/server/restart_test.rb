# frozen_string_literal: true

require_relative "../restarting"

# Restarts, as clients and operators see them.
class RestartTest < Minitest::Test
  include Restarting

  LAZY = "preload_app! false\n"
  # The arguments of a server, its configuration, the signal, and the name of the restart in the
  # log.
  KINDS = [
    [%w[-w 2], "", "USR2", "hot restart"],
    [%w[-w 2], LAZY, "USR1", "phased restart"],
    [%w[-w 2], "", "USR1", "hot restart"],
    [[], "", "USR2", nil]
  ].freeze
  CLUSTERS = KINDS.first(2)

  def test_no_client_notices_a_restart_but_by_the_new_code
    KINDS.each do |arguments, configuration, signal, name|
      write("config/puma.rb", configuration)
      pid = start_version("v1", *arguments)
      crowd = Crowd.new(8) { connect }
      crowd.ask_more(5)
      %w[v2 v3].each { |version| restart(pid, signal, name, to: version) }
      # The last of the old workers may still have some.
      eventually do
        bodies = crowd.responses.map(&:last)
        crowd.errors.size.positive? || bodies.all? { |body| body.start_with?("v3") }
      end
      crowd.ask_more(5)
      crowd.end
      assert_empty crowd.errors.size.times.map { crowd.errors.pop }, "#{arguments} #{signal}"
      last = crowd.responses.map(&:last)
      assert_equal ["v3"], last.map { |body| body[0, 2] }.uniq, "#{arguments} #{signal}"
      assert_predicate stop(pid), :success?
    end
  end

  def test_a_restart_that_would_change_between_workers_and_one_process_is_refused
    [[2, 0], [0, 2]].each do |before, after|
      write("config/puma.rb", "workers #{before}\n")
      pid = start_version("v1")
      write("config/puma.rb", "workers #{after}\n")
      logged("cannot change between workers and a single process") { Process.kill("USR2", pid) }
      logged("hot restart stopped: the trial failed") { Process.kill("USR2", pid) }
      assert_match(/\Av1 /, get.body)
      assert_predicate stop(pid), :success?
    end
  end

  def test_an_idle_connection_goes_on_with_the_new_workers
    KINDS.each do |arguments, configuration, signal, name|
      write("config/puma.rb", configuration)
      pid = start_version("v1", *arguments)
      idle = Array.new(20) { connect }
      idle.each { |client| assert_match(/\Av1 /, client.request.body) }
      half = connect.send("GET / HTT")
      restart(pid, signal, name, to: "v2")
      idle.each { |client| eventually { client.request.body.start_with?("v2 ") } }
      assert_match(/\Av2 /, half.send("P/1.1\r\nHost: a\r\n\r\n").response.body)
      assert_predicate stop(pid), :success?
    end
  end

  def test_a_request_that_lasts_gets_its_response_from_the_old_code
    CLUSTERS.each do |arguments, configuration, signal, name|
      write("config/puma.rb", configuration)
      pid = start_version("v1", *arguments)
      client = connect.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
      eventually { File.exist?(File.join(@folder, "slow")) }
      restart(pid, signal, name, to: "v2")
      assert_match(/\Av1 /, client.response.body)
      eventually { client.request.body.start_with?("v2 ") }
      assert_predicate stop(pid), :success?
      File.delete(File.join(@folder, "slow"))
    end
  end

  def test_a_restart_keeps_the_process_and_the_pidfile
    write("config/puma.rb", 'before_restart { File.write("hook", "called") }')
    pidfile = File.join(@folder, "pid")
    [%w[-w 1], []].each do |arguments|
      pid = start_version("v1", *arguments, "--pidfile", pidfile)
      restart(pid, "USR2", arguments.any? && "hot restart", to: "v2")
      assert_equal pid, File.read(pidfile).to_i
      assert_equal "called", File.read(File.join(@folder, "hook"))
      File.delete(File.join(@folder, "hook"))
      assert_predicate stop(pid), :success?
      refute_path_exists pidfile
    end
  end

  def test_an_application_that_does_not_boot_stops_the_restart_and_the_old_one_stays
    KINDS.each do |arguments, configuration, signal, name|
      write("config/puma.rb", configuration)
      pid = start_version("v1", *arguments)
      served = version_and_pid.last
      write("broken", "")
      write("version", "v2")
      logged("#{name || "hot restart"} stopped: ") { Process.kill(signal, pid) }
      assert_includes log, "the application raised RuntimeError at boot: it does not boot"
      assert_equal "v1", version_and_pid.first
      assert_equal [served], [served] & (arguments.any? ? worker_pids(pid) : [pid])
      File.delete(File.join(@folder, "broken"))
      restart(pid, signal, name, to: "v2")
      assert_predicate stop(pid), :success?
    end
  end

  # A server whose next workers wait at their boot until a file is there.
  def start_with_gate(arguments, configuration)
    write("config/puma.rb", configuration + <<~RUBY)
      before_worker_boot do
        File.write("booting", "\#{Process.pid}", mode: "a") if File.exist?("gate")
        sleep 0.01 while File.exist?("gate")
      end
    RUBY
    start_version("v1", *arguments)
  end

  def booting_worker
    path = File.join(@folder, "booting")
    eventually { File.size?(path) }
    File.read(path).to_i.tap { File.delete(path) }
  end

  # Removes the marks of processes that have waited at the gate before.
  def close_gate
    FileUtils.rm_f(File.join(@folder, "booting"))
    write("gate", "")
  end

  def open_gate = File.delete(File.join(@folder, "gate"))

  def test_a_new_worker_that_is_killed_as_it_boots_stops_the_restart
    CLUSTERS.each do |arguments, configuration, signal, name|
      pid = start_with_gate(arguments, configuration)
      close_gate
      write("version", "v2")
      Process.kill(signal, pid)
      logged("#{name} stopped: worker 0 was killed by signal KILL") do
        Process.kill("KILL", booting_worker)
      end
      assert_equal "v1", version_and_pid.first
      open_gate
      restart(pid, signal, name, to: "v2")
      assert_predicate stop(pid), :success?
    end
  end

  def test_an_old_worker_that_is_killed_meanwhile_is_replaced_all_the_same
    CLUSTERS.each do |arguments, configuration, signal, name|
      pid = start_with_gate(arguments, configuration)
      old = worker_pids(pid)
      close_gate
      write("version", "v2")
      Process.kill(signal, pid)
      booting = booting_worker
      logged("ended (signal KILL)") { old.each { |worker| Process.kill("KILL", worker) } }
      logged("#{name}: done") { open_gate }
      eventually { (worker_pids(pid) & old).empty? && worker_pids(pid).include?(booting) }
      await_version("v2")
      assert_predicate stop(pid), :success?
    end
  end

  def test_two_restarts_at_once_are_done_one_after_the_other
    CLUSTERS.each do |arguments, configuration, signal, name|
      pid = start_with_gate(arguments, configuration)
      close_gate
      Process.kill(signal, pid)
      booting_worker
      Process.kill(signal, pid)
      write("version", "v2")
      open_gate
      eventually { log.scan("#{name}: done").size == 2 }
      # After a hot restart, workers of the server before may accept for a moment more.
      eventually { version_and_pid.first == "v2" }
      assert_predicate stop(pid), :success?
    end
  end

  def test_term_in_the_middle_of_a_restart_ends_all
    CLUSTERS.each do |arguments, configuration, signal, _|
      pid = start_with_gate(arguments, configuration)
      close_gate
      Process.kill(signal, pid)
      booting = booting_worker
      workers = worker_pids(pid)
      assert_includes workers, booting
      assert_predicate stop(pid), :success?
      workers.each { |worker| assert_raises(Errno::ESRCH) { Process.kill(0, worker) } }
      open_gate
    end
  end

  def test_a_worker_alone_hands_its_connections_on
    pid = start_version("v1", "-w", "2")
    clients, served = [], []
    # Connects until both workers are reached.
    eventually do
      clients << connect
      served << clients.last.request.body.split.last.to_i
      served.size >= 10 && served.uniq.size == 2
    end
    logged("worker") { Process.kill("USR1", served.first) }
    again = clients.map { |client| client.request.body.split.last.to_i }
    refute_includes again, served.first
    assert_predicate stop(pid), :success?
  end

  def test_hup_takes_another_configuration_and_keeps_the_code
    write("config/puma.rb", 'rack_url_scheme "http"')
    pid = start_version("v1", "-w", "2")
    write("config.ru", "run ->(env) { [200, {}, ['new code']] }")
    write("config/puma.rb", "http_content_length_limit 3")
    logged("reload: done") { Process.kill("HUP", pid) }
    assert_equal 413, get("/", method: "POST", body: "long").status
    assert_equal "v1", version_and_pid.first
    write("config/puma.rb", "nonsense 3")
    logged("reload stopped: the configuration stays as it was") { Process.kill("HUP", pid) }
    assert_includes log, "unknown directive nonsense"
    assert_equal 413, get("/", method: "POST", body: "long").status
    assert_predicate stop(pid), :success?
  end

  # The signal pends in the old worker, which is stopped as by a debugger.
  def test_a_restart_is_done_when_the_last_old_worker_accepts_no_more
    [["HUP", "reload"], ["USR1", "phased restart"]].each do |signal, name|
      write("config/puma.rb", "preload_app! false")
      pid = start_version("v1", "-w", "1")
      old = version_and_pid.last
      # Of two pending signals, the process would handle USR1 first.
      suspend(old)
      write("config/puma.rb", "preload_app! false\nhttp_content_length_limit 3")
      Process.kill(signal, pid)
      eventually { retirement_pends?(old) }
      refute_equal old, version_and_pid.last
      refute_includes log, "#{name}: done"
      logged("#{name}: done") { Process.kill("CONT", old) }
      assert_predicate stop(pid), :success?
    end
  end

  # Whether a process has not yet handled a USR1.
  def retirement_pends?(pid)
    pending = File.read("/proc/#{pid}/status")[/^ShdPnd:\s*(\h+)/, 1].to_i(16)
    pending.anybits?(1 << (Signal.list["USR1"] - 1))
  end

  def test_a_file_that_is_touched_restarts
    write("config/puma.rb", "plugin :tmp_restart")
    [%w[-w 1], []].each do |arguments|
      pid = start_version("v1", *arguments)
      write("version", "v2")
      write("tmp/restart.txt", "")
      eventually { version_and_pid.first == "v2" }
      assert_predicate stop(pid), :success?
      FileUtils.rm_rf(File.join(@folder, "tmp"))
    end
  end

  def test_another_command_can_be_named_and_a_link_followed
    write("releases/1/version", "v1")
    write("releases/1/config.ru", VERSIONED)
    write("releases/2/version", "v2")
    write("releases/2/config.ru", VERSIONED)
    current = File.join(@folder, "current")
    File.symlink("releases/1", current)
    [%w[-w 1], []].each do |arguments|
      pid = start(*arguments, target: current)
      assert_equal "v1", version_and_pid.first
      File.delete(current)
      File.symlink("releases/2", current)
      restart(pid, "USR2", arguments.any? && "hot restart", to: "v2")
      assert_predicate stop(pid), :success?
      File.delete(current)
      File.symlink("releases/1", current)
    end
  end

  def test_what_the_application_starts_inherits_no_socket_of_the_server
    write("config.ru", <<~'RUBY')
      run ->(_) { [200, {}, [IO.popen(%w[ls -l /proc/self/fd], &:read)]] }
    RUBY
    write("config/puma.rb", "port 0")
    pid = start("-w", "1", port: [])
    2.times do
      refute_includes get.body, "socket:"
      restart(pid, "USR2", "hot restart")
    end
    assert_predicate stop(pid), :success?
  end
end
