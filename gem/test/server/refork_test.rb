# frozen_string_literal: true

require_relative "../restarting"

# Workers that are forked from a warm worker.
class ReforkTest < Minitest::Test
  include Restarting

  # An application that responds with the first serving process among this worker and its ancestors.
  WARMING = <<~'RUBY'
    run ->(env) {
      $first ||= Process.pid
      sleep 0.3 if env["PATH_INFO"] == "/slow"
      [200, {}, ["#{$first} #{Process.pid}"]]
    }
  RUBY

  def start_warming(configuration = "", *arguments)
    write("config.ru", WARMING)
    write("config/puma.rb", configuration)
    start(*arguments, "-t", "2")
  end

  # Until the old workers are gone.
  def refork(pid)
    workers = worker_pids(pid) - [template(pid)]
    logged("refork: done") { Process.kill("URG", pid) }
    eventually { worker_pids(pid).size == workers.size + 1 }
  end

  # The responses of the workers, each on a new connection.
  def firsts(count) = Array.new(count) { get.body.split.map(&:to_i) }

  # A worker that has just ended has no title.
  def title(worker)
    File.read("/proc/#{worker}/cmdline")
  rescue SystemCallError
    ""
  end

  def template(pid)
    worker_pids(pid).find { |worker| title(worker).include?("template") }
  end

  # The worker looks for the order once, and signals may be pending then.
  def test_the_order_to_become_the_template_is_seen_whatever_signals_arrive
    require "thruway/cluster/refork_worker"
    sender, orders = UNIXSocket.pair
    refute Thruway::ReforkWorker.wanted?(orders)
    caught = 0
    before = trap("USR2") { caught += 1 }
    pid = Process.pid
    signals = fork { loop { Process.kill("USR2", pid) } }
    until caught > 2000
      sender.send("template", 0)
      assert Thruway::ReforkWorker.wanted?(orders), "after #{caught} signals"
    end
    sender.close
    refute Thruway::ReforkWorker.wanted?(orders)
  ensure
    Process.kill("KILL", signals)
    Process.wait(signals)
    trap("USR2", before)
  end

  def test_workers_go_on_from_a_warm_worker_and_no_client_notices
    [1, 3].each do |workers|
      pid = start_warming("", "-w", workers.to_s)
      crowd = Crowd.new(8) { connect }
      2.times do
        crowd.ask_more(5)
        before = worker_pids(pid)
        refork(pid)
        assert_equal 1, (before & worker_pids(pid)).size, "the worker that is the template now"
      end
      crowd.ask_more(5)
      crowd.end
      assert_empty crowd.errors.size.times.map { crowd.errors.pop }, "#{workers} workers"
      first, = crowd.responses.map { |bodies| bodies.last.split.first }.uniq
      assert_equal [first.to_i], firsts(10).map(&:first).uniq
      refute_includes firsts(10).map(&:last), template(pid)
      left = worker_pids(pid)
      assert_predicate stop(pid), :success?
      left.each { |process| assert_raises(Errno::ESRCH) { Process.kill(0, process) } }
    end
  end

  def test_it_happens_once_after_so_many_requests_and_hooks_are_called
    pid = start_warming(<<~RUBY, "-w", "2")
      fork_worker 20
      worker_check_interval 0.05
      log = ->(text) { File.write("hooks", "\#{text}\\n", mode: "a") }
      before_refork { log["before_refork"] }
      after_refork { log["after_refork"] }
      on_worker_boot { |index| log["boot \#{index}"] }
      on_worker_shutdown { |index| log["shutdown \#{index}"] }
    RUBY
    client = connect
    eventually { client.request.status == 200 && log.include?("refork: done") }
    hooks = File.readlines(File.join(@folder, "hooks"), chomp: true)
    assert_equal ["boot 0", "boot 1"], hooks.first(2).sort
    asked = hooks.index("before_refork")
    assert_match(/\Ashutdown/, hooks[asked - 1])
    later = hooks.drop(asked).grep(/after|boot/).sort
    assert_equal ["after_refork", "after_refork", "boot 0", "boot 1"], later
    client = connect
    60.times { client.request }
    assert_equal 1, log.scan("becomes the template").size
    assert_predicate stop(pid), :success?
  end

  def test_a_worker_that_dies_is_forked_from_the_template_and_without_it_from_the_supervisor
    pid = start_warming("", "-w", "2")
    eventually { firsts(5).flatten.uniq.size == 2 }
    refork(pid)
    first = get.body.split.first
    kill_workers(pid, 2)
    assert_equal [first], firsts(6).map { |line| line.first.to_s }.uniq
    logged("the refork template has exited") { Process.kill("KILL", template(pid)) }
    kill_workers(pid, 2)
    refute_includes firsts(6).map { |line| line.first.to_s }, first
    assert_predicate stop(pid), :success?
  end

  # Waits until as many other workers exist. A worker that the template forked right before its end
  # may exist for a moment, too.
  def kill_workers(pid, count)
    workers = worker_pids(pid) - [template(pid)]
    workers.each { |worker| Process.kill("KILL", worker) }
    eventually do
      now = worker_pids(pid) - [template(pid)]
      (now & workers).empty? && now.size == count
    end
  end

  # A worker closes the supervisor's sockets once. Children that are forked from the worker must not
  # close other files that have the same descriptors by then.
  def test_a_refork_waits_for_the_first_worker_to_boot
    gate = "before_worker_boot { sleep 0.005 while File.exist?('gate') }"
    pid = start_warming(gate, "-w", "1")
    write("gate", "")
    worker = worker_pids(pid)
    Process.kill("KILL", *worker)
    eventually { worker_pids(pid).any? && worker_pids(pid) != worker }
    logged("refork: done") do
      Process.kill("URG", pid)
      File.delete(File.join(@folder, "gate"))
    end
  end

  def test_a_refork_can_be_requested_by_the_control_application_again_and_again
    pid = start_warming(<<~RUBY, "-w", "1")
      activate_control_app "unix://#{@folder}/control"
      state_path "state"
      agent_check "tcp://127.0.0.1:0"
    RUBY
    state = File.join(@folder, "state")
    2.times do
      logged("refork: done") { assert system(BINARY, "ctl", "-S", state, "refork") }
      client = connect
      3.times { assert_equal 200, client.request.status }
    end
    assert_predicate stop(pid), :success?
  end

  def test_a_thread_of_the_application_stops_a_refork_unless_it_is_fork_safe
    write("config.ru", <<~'RUBY')
      require "timeout"
      run ->(env) {
        Timeout.timeout(3600) { $thread ||= Thread.new { sleep } if env["PATH_INFO"] == "/thread" }
        $thread.thread_variable_set(:fork_safe, true) if env["PATH_INFO"] == "/safe"
        [200, {}, ["#{Process.pid}"]]
      }
    RUBY
    pid = start("-w", "1")
    refork(pid)
    get("/thread")
    logged("refork stopped: thread #<Thread") { Process.kill("URG", pid) }
    get("/thread")
    get("/safe")
    refork(pid)
    assert_predicate stop(pid), :success?
  end

  def test_a_connection_of_the_application_ends_in_its_children
    peer = TCPServer.new("127.0.0.1", 0)
    echo = Thread.new do
      loop { Thread.new(peer.accept) { |io| io.each_line { |line| io.write(line) } } }
    end
    write("config.ru", <<~RUBY)
      require "socket"
      ask = -> {
        $io ||= TCPSocket.new("127.0.0.1", #{peer.addr[1]})
        $io.puts("hello")
        $io.gets
      }
      run ->(_) {
        line = ask.call rescue nil
        $io = nil unless line
        [200, {}, [line || "ended"]]
      }
    RUBY
    pid = start("-w", "1")
    assert_equal "hello\n", get.body
    refork(pid)
    assert_equal "ended", get.body
    assert_equal "hello\n", get.body
    assert_predicate stop(pid), :success?
  ensure
    echo&.kill
    peer&.close
  end

  def test_new_code_and_a_new_configuration_end_the_template
    [["preload_app! false\n", "USR1", "phased restart"],
     ["", "USR2", "hot restart"]].each do |configuration, signal, name|
      write("config/puma.rb", configuration)
      pid = start_version("v1", "-w", "2")
      refork(pid)
      restart(pid, signal, name, to: "v2")
      eventually { worker_pids(pid).size == 2 }
      # The old workers are gone.
      10.times { assert_equal "v2", version_and_pid.first }
      refork(pid)
      write("config/puma.rb", "#{configuration}http_content_length_limit 3")
      logged("reload: done") { Process.kill("HUP", pid) }
      eventually { worker_pids(pid).size == 2 }
      assert_equal 413, get("/", method: "POST", body: "long").status
      assert_predicate stop(pid), :success?
    end
  end

  # Returns the number of descriptors that stay open. A thread that examines another one has a file
  # of /proc open for a moment.
  def descriptors(worker)
    paths = Dir.children("/proc/#{worker}/fd").map { |number| "/proc/#{worker}/fd/#{number}" }
    paths.count { |path| !File.readlink(path).start_with?("/proc") }
  rescue Errno::ENOENT
    retry
  end

  def test_descriptors_do_not_add_up_over_generations
    pid = start_warming("", "-w", "1")
    client = connect
    counts = Array.new(3) do
      client.request
      refork(pid)
      # The new worker owns the client after it has served it once.
      client.request
      worker = worker_pids(pid) - [template(pid)]
      descriptors(worker.first)
    end
    assert_equal 1, counts.drop(1).uniq.size, counts.inspect
    assert_predicate stop(pid), :success?
  end

  def test_a_hook_that_raises_stops_it_and_the_workers_stay
    pid = start_warming("after_refork { raise 'no' if File.exist?('broken') }", "-w", "2")
    write("broken", "")
    logged("refork stopped: worker 0 did not boot") { Process.kill("URG", pid) }
    eventually { worker_pids(pid).size == 2 }
    kill_workers(pid, 2)
    assert_equal 200, get.status
    assert_predicate stop(pid), :success?
  end
end
