# frozen_string_literal: true

require_relative "../installed"
require_relative "../ports"
require_relative "../restarting"

require "thruway/launch/systemd_notifier"

# The interfaces to service managers and load balancers, and the recycling of workers.
class OperationTest < Minitest::Test
  include Restarting
  include Installed

  KINDS = [[], %w[-w 2]].freeze

  # A service manager's end of the notifications.
  def notified
    @notified ||= Socket.new(:UNIX, :DGRAM).tap do |socket|
      socket.bind(Socket.sockaddr_un(File.join(@folder, "notify")))
    end
  end

  # Waits for a message with this line. Returns all messages up to it.
  def told(line)
    messages = []
    Timeout.timeout(PATIENCE_SECONDS) do
      messages << notified.recv(4096) until messages.last&.lines(chomp: true)&.include?(line)
    end
    messages
  end

  # Starts a server as a service manager does, with sockets as the descriptors from 3 on.
  def start_service(*arguments, sockets: {}, variables: {})
    notified
    @log = File.join(@folder, "log")
    out, said = IO.pipe
    variables = { "NOTIFY_SOCKET" => File.join(@folder, "notify") }.merge(variables)
    # Only the process itself knows the number for LISTEN_PID.
    script = 'export LISTEN_PID=$$ WATCHDOG_PID=$$; exec "$0" "$@"'
    descriptors = sockets.values.each_with_index.to_h { |socket, index| [3 + index, socket] }
    unless sockets.empty?
      variables.update("LISTEN_FDS" => sockets.size.to_s,
                       "LISTEN_FDNAMES" => sockets.keys.join(":"))
    end
    @pids << spawn(variables, "sh", "-c", script, BINARY, "serve", @folder, *arguments,
                   out: said, err: @log, **descriptors)
    said.close
    @address = Timeout.timeout(PATIENCE_SECONDS) { out.gets }[%r{on ((http|unix)://[^ ,]+)}, 1]
    @pids.last
  end

  def versioned(version)
    write("config.ru", VERSIONED)
    write("version", version)
  end

  def test_a_service_manager_is_told_of_the_start_of_restarts_and_of_the_end
    KINDS.each do |arguments|
      versioned("v1")
      pid = start_service("-p", "0", *arguments)
      told("READY=1")
      write("version", "v2")
      Process.kill("USR2", pid)
      began = told("RELOADING=1").size
      assert_equal 1, began
      told("READY=1")
      eventually { version_and_pid.first == "v2" }
      Process.kill("HUP", pid)
      reload = notified.recv(4096)
      assert_match(/\ARELOADING=1\nMONOTONIC_USEC=\d+\n\z/, reload)
      told("READY=1")
      write("broken", "")
      Process.kill("USR2", pid)
      told("RELOADING=1")
      status = told("READY=1").last
      assert_match(/STATUS=.*hot restart stopped: the trial failed/, status)
      File.delete(File.join(@folder, "broken"))
      Process.kill("TERM", pid)
      told("STOPPING=1")
      assert_predicate Process.wait2(pid).last, :success?
    end
  end

  def test_a_service_manager_gets_signs_of_life
    KINDS.each do |arguments|
      versioned("v1")
      pid = start_service("-p", "0", *arguments, variables: { "WATCHDOG_USEC" => "400000" })
      2.times { told("WATCHDOG=1") }
      Process.kill("USR2", pid)
      eventually { log.include?("trying the command") }
      # The server must handle signals before it is stopped.
      arguments.empty? ? told("READY=1") : (told("READY=1") until log.include?("hot restart: done"))
      2.times { told("WATCHDOG=1") }
      assert_predicate stop(pid), :success?
    end
  end

  # Fills the service manager's queue with signs of life.
  def fill_queue
    socket = Socket.new(:UNIX, :DGRAM)
    sign = ["WATCHDOG=1\n", 0, notified.local_address.to_sockaddr]
    nil until socket.sendmsg_nonblock(*sign, exception: false) == :wait_writable
    socket.close
  end

  def test_a_service_manager_that_is_late_misses_no_state
    fill_queue
    path = File.join(@folder, "notify")
    notifier = Thruway::SystemdNotifier.new(path, patience_seconds: PATIENCE_SECONDS)
    sender = Thread.new { notifier.ready }
    eventually { sender.stop? }
    told("READY=1")
    sender.join
    fill_queue
    # A service manager that hangs stops nothing.
    Thruway::SystemdNotifier.new(path, patience_seconds: 0.05).stopping
  end

  def test_the_application_sees_none_of_the_variables_of_a_service_manager
    write("config.ru", <<~'RUBY')
      names = ENV.keys.grep(/\A(LISTEN_|NOTIFY_|WATCHDOG_|THRUWAY_(INHERIT|TRIAL))/)
      run ->(_) { [200, {}, [names.inspect]] }
    RUBY
    socket = TCPServer.new("127.0.0.1", 0)
    pid = start_service(sockets: { "web" => socket }, variables: { "WATCHDOG_USEC" => "1000000" })
    assert_equal "[]", get.body
    assert_predicate stop(pid), :success?
  end

  def connect_by_unix = Client.new(UNIXSocket.new(File.join(@folder, "web.sock")))

  def test_sockets_of_a_service_manager_are_taken_by_address_and_by_name_and_stay_open
    KINDS.each do |arguments|
      versioned("v1")
      tcp = TCPServer.new("127.0.0.1", 0)
      unix = UNIXServer.new(File.join(@folder, "web.sock"))
      sockets = { "tcp" => tcp, "files" => unix }
      address = "tcp://127.0.0.1:#{tcp.local_address.ip_port}"
      [["-b", address, "-b", "systemd://files"], []].each do |binds|
        pid = start_service(*arguments, *binds, sockets: sockets)
        assert_equal address.sub("tcp", "http"), @address
        assert_equal "v1", version_and_pid.first
        write("version", "v2")
        Process.kill("USR2", pid)
        eventually { version_and_pid.first == "v2" }
        # Another worker may still run the old version.
        eventually { connect_by_unix.request.body.start_with?("v2") }
        write("version", "v1")
        eventually { log.include?("done") } unless arguments.empty?
        assert_predicate stop(pid), :success?
        # The service manager goes on with them: connections wait for the next start.
        waiting = connect
        assert_path_exists File.join(@folder, "web.sock")
        tcp.accept.close
        assert_predicate waiting, :closed?
      end
      [tcp, unix].each(&:close)
      File.delete(File.join(@folder, "web.sock"))
    end
  end

  def test_only_the_sockets_of_a_service_manager_are_used_if_that_is_said
    versioned("v1")
    write("config/puma.rb", "port 0\nbind_to_activated_sockets 'only'")
    socket = TCPServer.new("127.0.0.1", 0)
    pid = start_service(sockets: { "web" => socket })
    title = File.read("/proc/#{pid}/cmdline").delete("\0")
    assert_includes title, "(tcp://127.0.0.1:#{socket.local_address.ip_port})"
    assert_predicate stop(pid), :success?
    assert_includes refusal(@folder, "-b", "systemd://web"), "systemd has passed no socket"
  end

  # Whether the server's response, which must arrive, is the connection's last.
  def closes?(client)
    response = client.request
    assert_equal 200, response.status
    response["connection"] == "close"
  end

  def test_a_stopping_server_fails_its_health_check_and_accepts_until_its_delay_is_over
    write("config/puma.rb", "health_check '/up'\ndrain_delay 600")
    KINDS.each do |arguments|
      pid = start_version("v1", *arguments)
      idle = connect
      assert_equal 200, idle.request("/up").status
      Process.kill("TERM", pid)
      eventually { get("/up").status == 503 }
      # One of two workers may learn of the stop later than the other.
      eventually { Array.new(10) { closes?(connect) }.all? }
      eventually { closes?(idle) }
      assert_predicate idle, :closed?
      assert_predicate stop(pid), :success?, "a second TERM ends the delay"
      assert_raises(Errno::ECONNREFUSED) { connect }
    end
  end

  def test_a_delay_ends_by_itself
    write("config/puma.rb", "drain_delay 0.2")
    KINDS.each do |arguments|
      pid = start_version("v1", *arguments)
      assert_predicate stop(pid), :success?
    end
  end

  FAILING = <<~'RUBY'
    run ->(env) {
      raise "no" if env["PATH_INFO"] == "/raise"
      [200, {}, ["hello"]]
    }
  RUBY

  def test_logs_on_a_full_disk_cost_no_request
    write("config.ru", FAILING)
    write("config/puma.rb", "log_requests\nstdout_redirect '/dev/full', '/dev/full', true\n")
    [%w[-w 1], []].each do |arguments|
      port = Ports.free_port
      pid = spawn(BINARY, "serve", @folder, "-p", port.to_s, *arguments, %i[out err] => "/dev/null")
      @pids << pid
      @address = "http://127.0.0.1:#{port}"
      eventually { reachable? }
      client = connect
      3.times do
        assert_equal 200, client.request.status
        assert_equal 500, client.request("/raise").status
      end
      assert_predicate stop(pid), :success?
    end
  end

  # The limit holds for logs, and for request bodies that wait in files: its signal ends a process.
  def test_writes_beyond_the_limit_of_file_sizes_end_no_server
    write("config.ru", FAILING)
    write("config/puma.rb", "log_requests\nstdout_redirect 'out', 'err', true\n")
    [%w[-w 1], []].each do |arguments|
      %w[out err].each { |name| FileUtils.rm_f(File.join(@folder, name)) }
      pid = start_logged(*arguments)
      2.times { assert_equal 507, get("/", method: "POST", body: "x" * 300_000).status }
      client = connect
      300.times { assert_equal 500, client.request("/raise?#{"x" * 300}").status }
      assert_operator File.size(File.join(@folder, "err")), :<=, 64 << 10
      assert_equal 200, client.request.status
      assert_predicate stop(pid), :success?
    end
  end

  # Starts a server whose first line goes to its log, and that may write files of 64 KiB.
  def start_logged(*arguments)
    port = Ports.free_port
    pid = spawn("prlimit", "--fsize=#{64 << 10}", BINARY, "serve", @folder, "-p", port.to_s,
                *arguments, %i[out err] => "/dev/null")
    @pids << pid
    @address = "http://127.0.0.1:#{port}"
    eventually { reachable? }
    pid
  end

  def reachable?
    get.status == 200
  rescue SystemCallError
    false
  end

  def test_connections_beyond_the_limit_of_descriptors_wait
    write("config.ru", FAILING)
    # Some clients with a response keep their connections.
    write("config/puma.rb", "persistent_timeout 1")
    pid = start("-t", "1", by: %w[prlimit --nofile=48:48])
    clients = Array.new(80) { connect }
    clients.each { |client| client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n") }
    assert_equal 200, clients.first.response.status
    clients.first(60).each { |client| client.io.close }
    assert_equal 200, clients.last.response.status
    assert_predicate stop(pid), :success?
  end

  def test_a_worker_is_replaced_when_it_has_had_its_time
    { "worker_max_requests 20" => /replacing worker \d after \d+ requests/,
      "worker_max_mb 1" => /replacing worker \d after \d+ MiB/,
      "worker_max_age 1" => /replacing worker \d after \d+ seconds/ }.each do |limit, line|
      write("config/puma.rb", "worker_check_interval 0.05\n#{limit}")
      pid = start_version("v1", "-w", "2")
      first = worker_pids(pid)
      crowd = Crowd.new(4) { connect }
      eventually { (worker_pids(pid) & first).empty? }
      crowd.end
      assert_empty(crowd.errors.size.times.map { crowd.errors.pop })
      assert_match(line, log)
      assert_predicate stop(pid), :success?
    end
  end

  # The request takes the interpreter's lock and never releases it.
  def test_a_worker_that_hangs_is_killed_and_replaced
    skip_without("fiddle")
    write("config/puma.rb", "worker_check_interval 0.1\nworker_timeout 4")
    write("config.ru", <<~'RUBY')
      require "fiddle"
      SLEEP = Fiddle::Function.new(Fiddle.dlopen(nil)["sleep"], [Fiddle::TYPE_INT],
                                   Fiddle::TYPE_INT, need_gvl: true)
      run lambda { |env|
        SLEEP.call(600) if env["PATH_INFO"] == "/hang"
        [200, {}, [Process.pid.to_s]]
      }
    RUBY
    pid = start("-w", "1", "-t", "1")
    first = get.body.to_i
    hanging = connect.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
    eventually { log.include?("worker 0 has not run Ruby code for 4 s") }
    assert_predicate hanging, :closed?
    refute_equal first, get.body.to_i
    assert_predicate stop(pid), :success?
  end
end
