# frozen_string_literal: true

require "json"

require_relative "../commands"
require_relative "../ports"

# The control application, and `thruway ctl`.
class ControlTest < Minitest::Test
  include Commands

  def start_with_control(words = "", *arguments, application: HELLO)
    write("config.ru", application)
    @control = File.join(@folder, "control.sock")
    @state = File.join(@folder, "state")
    write("config/puma.rb", <<~RUBY)
      activate_control_app "unix://#{@control}", auth_token: "secret"
      state_path "#{@state}"
      #{words}
    RUBY
    start("-e", "production", *arguments)
  end

  def ask(path, token: "secret")
    client = Client.new(UNIXSocket.new(@control))
    client.send("GET /#{path}?token=#{token} HTTP/1.0\r\n\r\n").response
  end

  def ctl(*arguments)
    Open3.capture3(BINARY, "ctl", *arguments)
  end

  # A thread is busy for a moment after its response has left. The block selects the statuses of
  # threads.
  def statistics_at_rest
    stats = nil
    eventually do
      stats = JSON.parse(ask("stats").body)
      yield(stats).all? { |status| status["busy_threads"].zero? }
    end
    stats
  end

  def test_statistics_are_those_of_puma_with_workers
    start_with_control("", "-w", "2", "-t", "3")
    3.times { get }
    stats = statistics_at_rest { |all| all["worker_status"].map { |one| one["last_status"] } }
    assert_equal [2, 2, 0, 0], stats.values_at("workers", "booted_workers", "old_workers", "phase")
    assert_match(/\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\z/, stats["started_at"])
    status = stats["worker_status"]
    assert_equal([0, 1], status.map { |worker| worker["index"] })
    load = status.map { |worker| worker["last_status"] }
    assert_equal(3, load.sum { |worker| worker["requests_count"] })
    assert_equal({ "backlog" => 0, "running" => 3, "pool_capacity" => 3, "busy_threads" => 0,
                   "max_threads" => 3, "computing_requests" => 0, "waiting_requests" => 0,
                   "streaming_requests" => 0 }, load[0].except("requests_count"))
    assert_equal RUBY_VERSION, stats.dig("versions", "ruby", "version")
  end

  # No process listens at the authority's port, so the agent reports the failure.
  def test_statistics_have_the_certificates_that_an_agent_keeps
    closed = Ports.free_port
    words = "acme_domain 'a.example'\nacme_directory 'https://127.0.0.1:#{closed}/dir'\n" \
            "acme_storage #{File.join(@folder, "keys").inspect}"
    %w[2 0].each do |workers|
      addresses = %w[ssl tcp].flat_map { |scheme| ["-b", "#{scheme}://127.0.0.1:0"] }
      pid = start_with_control(words, "-w", workers, *addresses)
      eventually do
        stats = JSON.parse(ask("stats").body)
        name, not_after, error = stats.fetch("certificates").first
                                      .values_at("name", "not_after_seconds", "last_error")
        [name, not_after] == ["a.example", nil] && error&.start_with?("cannot ask the authority: ")
      end
      stop(pid)
    end
  end

  def test_statistics_of_one_process_are_its_own
    start_with_control("", "-w", "0", "-t", "2")
    get
    stats = statistics_at_rest { |all| [all] }
    assert_equal [0, 2, 2, 0, 2, 1],
                 stats.values_at("backlog", "running", "pool_capacity", "busy_threads",
                                 "max_threads", "requests_count")
  end

  def test_without_the_token_nothing_is_told_or_done
    pid = start_with_control("", "-w", "0")
    ["", "wrong", "secre", "secret2"].each do |token|
      assert_equal [403, "Invalid auth token"], ask("stop", token: token).to_a.values_at(0, 2)
    end
    assert_equal 200, get.status
    assert_equal 404, ask("nothing").status
    assert_equal 0o600, File.stat(@state).mode & 0o777
    assert_equal 0, ctl("status", "-S", @state)[2].exitstatus
    assert_equal 2, ctl("stats", "-C", "unix://#{@control}", "-T", "wrong")[2].exitstatus
    assert_predicate stop(pid), :success?
    refute_path_exists @state
    refute_path_exists @control
  end

  def test_ctl_prints_data_and_stops_the_server
    pid = start_with_control("", "-w", "2")
    %w[stats gc-stats thread-backtraces].each do |command|
      out, said, status = ctl(command, "-S", @state)
      assert_predicate status, :success?, said
      refute_empty JSON.parse(out), command
    end
    %w[gc reload-worker-directory].each do |command|
      assert_equal ["", ""], ctl(command, "-S", @state)[0, 2], command
    end
    assert_predicate ctl("stop", "-S", @state)[2], :success?
    assert_predicate Timeout.timeout(PATIENCE_SECONDS) { Process.wait2(pid).last }, :success?
    out, said, status = ctl("status", "-p", pid.to_s)
    assert_equal ["", 1], [out, status.exitstatus]
    assert_includes said, "thruway: process #{pid} cannot be reached"
  end

  def test_halt_ends_a_server_that_is_busy
    pid = start_with_control("", "-w", "0", application: "run ->(_) { sleep }")
    connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert_predicate ctl("halt", "-S", @state)[2], :success?
    Timeout.timeout(PATIENCE_SECONDS) { Process.wait(pid) }
  end

  def test_commands_go_by_signals_where_there_is_no_control_application
    write("config.ru", HELLO)
    path = File.join(@folder, "pid")
    pid = start("--pidfile", path)
    assert_predicate ctl("status", "-P", path)[2], :success?
    assert_predicate ctl("thread-backtraces", "-P", path)[2], :success?
    eventually { File.read(@log).include?("thruway: thread") }
    _, said, status = ctl("stats", "-P", path)
    assert_equal 2, status.exitstatus
    assert_includes said, "thruway: stats needs the control application"
    assert_predicate ctl("stop", "-P", path)[2], :success?
    assert_predicate Timeout.timeout(PATIENCE_SECONDS) { Process.wait2(pid).last }, :success?
  end

  def test_a_client_that_hangs_keeps_no_other_from_it
    start_with_control("", "-w", "2")
    hung = Array.new(5) { UNIXSocket.new(@control).tap { |socket| socket.write("GET /st") } }
    assert_equal 200, ask("stats").status
    hung.each(&:close)
  end

  def test_what_workers_are_needed_for_is_refused_without_any
    start_with_control("", "-w", "0")
    _, said, status = ctl("phased-restart", "-S", @state)
    assert_equal 2, status.exitstatus
    assert_includes said, "the server refused phased-restart"
  end

  def test_by_itself_it_is_for_the_own_user_with_a_token_of_chance
    write("config.ru", HELLO)
    write("config/puma.rb", "activate_control_app\nstate_path 'state'")
    start("-w", "0")
    state = File.read(File.join(@folder, "state"))
    path = state[%r{control_url: "unix://(.*)"}, 1]
    assert_equal 0o600, File.stat(path).mode & 0o777
    assert_match(/^control_auth_token: "\h{32}"$/, state)
    assert_predicate ctl("stats", "-S", File.join(@folder, "state"))[2], :success?
  end

  def test_an_application_for_data_alone_changes_nothing
    write("config.ru", HELLO)
    @control = File.join(@folder, "control.sock")
    ["no_token: true, data_only: true", "{ no_token: true, data_only: true }"].each do |options|
      write("config/puma.rb", "activate_control_app 'unix://#{@control}', #{options}")
      pid = start("-w", "1")
      %w[stats gc-stats].each { |path| assert_equal 200, ask(path).status, path }
      %w[stop halt restart phased-restart refork reload-worker-directory gc thread-backtraces]
        .each { |path| assert_equal 404, ask(path).status, path }
      assert_equal 200, get.status
      assert_predicate stop(pid), :success?
    end
  end

  def test_a_umask_holds_for_the_socket
    write("config.ru", HELLO)
    path = File.join(@folder, "control.sock")
    { "'unix://#{path}', no_token: true" => 0o777,
      "'unix://#{path}', { no_token: true, umask: 0o077 }" => 0o700,
      "'unix://#{path}?backlog=5', umask: '0117'" => 0o660 }.each do |arguments, mode|
      write("config/puma.rb", "activate_control_app #{arguments}")
      pid = start
      assert_equal mode, File.stat(path).mode & 0o777, arguments
      stop(pid)
    end
  end

  def test_what_would_not_restrict_is_refused
    write("config.ru", HELLO)
    { "'tcp://127.0.0.1:0', umask: 0o077" => "umask: needs a unix socket",
      "'unix://c?mode=666', umask: 0o077" => "umask: needs a unix socket without mode=",
      "'auto', umask: 0o1000" => "umask: must be 0 to 0777",
      "'auto', auth_token: ''" => "auth_token: is empty",
      "'auto', only_data: true" => "activate_control_app has no option only_data:" }
      .each do |arguments, reason|
        write("config/puma.rb", "activate_control_app #{arguments}")
        assert_includes refusal(@folder), reason
      end
  end
end
