# frozen_string_literal: true

require_relative "../commands"
require_relative "../installed"

# `thruway serve` with an application, through the binary.
class CommandTest < Minitest::Test
  include Commands
  include Installed

  def test_a_rackup_file_is_served_until_a_signal_stops_it
    pid = start(target: write("hello.ru", HELLO))
    assert_equal "#{pid} false", get.body
    assert_predicate stop(pid), :success?
    assert_equal "", File.read(@log)
  end

  def test_a_folder_with_a_rackup_file_is_an_application
    write("config.ru", "#\\ -p 1\nrequire_relative 'lib/app'\nrun App\n__END__\nnot ruby")
    write("lib/app.rb", "App = ->(env) { [200, {}, [Dir.pwd]] }")
    pid = start
    assert_equal File.realpath(@folder), get.body
    assert_predicate stop(pid, "INT"), :success?
  end

  def test_requests_are_spread_over_workers
    write("config.ru", HELLO)
    master = start("-w", "2", "-t", "1")
    clients = Array.new(2) { connect }
    pids = clients.flat_map { |client| Array.new(5) { client.request.body.split } }.uniq
    refute_includes pids.map(&:first), master.to_s
    assert_equal ["true"], pids.map(&:last).uniq
    assert_predicate stop(master), :success?
  end

  def test_a_worker_that_dies_is_replaced
    write("config.ru", HELLO)
    master = start("-w", "1")
    worker = get.body.to_i
    Process.kill("KILL", worker)
    eventually { File.read(@log).include?("worker 0 ended (signal KILL); starting another now") }
    replaced = Timeout.timeout(PATIENCE_SECONDS) { get.body.to_i }
    refute_equal worker, replaced
    assert_predicate stop(master), :success?
    assert_raises(Errno::ESRCH) { Process.kill(0, replaced) }
  end

  def test_workers_do_not_outlive_their_master
    write("config.ru", HELLO)
    master = start("-w", "1")
    worker = get.body.to_i
    stop(master, "KILL")
    eventually { !File.directory?("/proc/#{worker}") }
  end

  def test_an_answer_that_was_begun_is_finished_before_the_end
    write("config.ru", WAITING)
    File.mkfifo(File.join(@folder, "gate"))
    [[], %w[-w 1]].each do |arguments|
      pid = start(*arguments)
      client = connect.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
      # The open waits for the application's.
      File.open(File.join(@folder, "gate"), "w") do |gate|
        Process.kill("TERM", pid)
        eventually { refused? }
        gate.puts "now"
      end
      assert_match(/\A\d+\z/, client.response.body)
      assert_predicate Process.wait2(pid).last, :success?
    end
  end

  def test_a_configuration_file_is_read_and_options_go_before_it
    write("config.ru", HELLO)
    write("config/puma.rb", <<~RUBY)
      workers 2
      threads 1, 3
      environment "staging"
      pidfile "server.pid"
      idle_timeout 60
      log = ->(text) { File.write("hooks", "\#{text}\\n", mode: "a") }
      before_fork { log["before_fork"] }
      on_worker_boot { |index| log["on_worker_boot \#{index}"] }
      on_worker_shutdown { log["on_worker_shutdown"] }
      on_booted { log["on_booted"] }
    RUBY
    pid = start("-w", "1")
    assert_equal pid, File.read(File.join(@folder, "server.pid")).to_i
    assert_match(/\A\d+ true\z/, get.body)
    assert_predicate stop(pid), :success?
    hooks = File.readlines(File.join(@folder, "hooks"), chomp: true)
    assert_equal ["before_fork", "on_booted", "on_worker_boot 0", "on_worker_shutdown"], hooks.sort
    assert_includes File.read(@log), "config/puma.rb:5: idle_timeout is ignored: "
    refute_path_exists File.join(@folder, "server.pid")
  end

  def test_a_unix_socket_is_made_with_its_mode_and_taken_away
    write("config.ru", HELLO)
    socket = File.join(@folder, "app.sock")
    pid = start("-b", "unix://#{socket}?mode=0600", port: [])
    assert_equal 0o600, File.stat(socket).mode & 0o777
    assert_equal "#{pid} false", get.body
    stop(pid)
    refute_path_exists socket
  end

  def test_the_environment_is_told
    write("config.ru",
          'run ->(_) { [200, {}, [ENV.values_at("RACK_ENV", "RAILS_ENV").join(" ")]] }')
    start("-e", "test")
    assert_equal "test test", get.body
  end

  def test_what_keeps_a_server_from_starting_is_told_in_one_line
    hello = write("config.ru", HELLO)
    start
    taken = @address[/\d+\z/]
    assert_equal <<~TEXT, refusal(hello, "-p", taken)
      thruway: cannot listen on http://127.0.0.1:#{taken}: Address already in use (os error 98)

      hint: another process listens there; stop it, or choose another port with -p
    TEXT
    assert_includes refusal(File.join(@folder, "none.ru")),
                    "there is no #{@folder}/none.ru\n\nhint: "
    assert_includes refusal(hello, "-p", "0", "-C", "none.rb"), "cannot read #{Dir.pwd}/none.rb"
  end

  def test_an_option_of_puma_s_command_is_refused_with_what_stands_for_it
    { "--dir" => "name the folder: thruway serve DIR", "-q" => "leave it out",
      "--control-url" => "set activate_control_app in config/puma.rb",
      "--plugin=x" => "set it in config/puma.rb" }.each do |option, advice|
        assert_includes refusal(option, "x"), advice
      end
  end

  def test_what_cannot_be_meant_is_refused
    hello = write("config.ru", HELLO)
    assert_includes refusal(hello, "-w", "100000"), "must be auto, or a number from 0 to 1024"
    assert_includes refusal(hello, "-t", "0"), "cannot start 0 threads: it must be 1 to 1024\n"
    write("config/puma.rb", "workers 2000")
    assert_includes refusal(@folder), "cannot start 2000 workers: it must be 0 to 1024\n"
  end

  def test_a_socket_file_is_taken_over_from_the_dead_only
    write("config.ru", HELLO)
    socket = File.join(@folder, "app.sock")
    arguments = ["-b", "unix://#{socket}", "-w", "1"]
    first = start(*arguments, port: [])
    assert_includes refusal(@folder, *arguments), "cannot listen on unix://#{socket}: Address alr"
    worker = get.body.to_i
    stop(first, "KILL")
    eventually { !File.directory?("/proc/#{worker}") }
    assert_path_exists socket
    start(*arguments, port: [])
    assert_equal 200, get.status
    File.write(File.join(@folder, "plain"), "kept")
    said = refusal(@folder, "-b", "unix://#{@folder}/plain")
    assert_includes said, "cannot listen on unix://#{@folder}/plain: "
    assert_equal "kept", File.read(File.join(@folder, "plain"))
  end

  def test_a_pidfile_that_cannot_be_written_is_told_in_one_line
    hello = write("config.ru", HELLO)
    assert_includes refusal(hello, "-p", "0", "--pidfile", "#{@folder}/none/pid"),
                    "cannot write the pidfile: No such file or directory"
  end

  # An application that responds with its process number. /wait responds when a line comes through
  # the fifo.
  WAITING = <<~'RUBY'
    run lambda { |env|
      File.read("gate") if env["PATH_INFO"] == "/wait"
      [200, {}, [Process.pid.to_s]]
    }
  RUBY

  # Returns kept connections, grouped by the worker that serves them.
  def connections_by_worker(count)
    Array.new(count) { connect }.group_by { |client| client.request.body }
  end

  def test_connections_are_spread_over_the_workers
    write("config.ru", WAITING)
    start("-w", "2", "-t", "1")
    # Usually [4, 4]. One worker seems busier while the system lets it wait for a processor.
    eventually do
      clients = connections_by_worker(8).values
      clients.flatten.each { |client| client.io.close }
      clients.size == 2 && clients.map(&:size).min > 1
    end
  end

  def test_a_request_behind_a_long_one_is_served_by_another_worker
    write("config.ru", WAITING)
    File.mkfifo(File.join(@folder, "gate"))
    start("-w", "2", "-t", "1")
    blocked, (long, short) = connections_by_worker(4).find { |_, clients| clients.size > 1 }
    long.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
    3.times { refute_equal blocked, short.request.body }
    4.times { refute_equal blocked, get.body, "new connections go elsewhere, too" }
    File.write(File.join(@folder, "gate"), "now\n")
    assert_equal blocked, long.response.body
  end

  def test_a_signal_during_the_forking_of_workers_stops_them_all
    write("config.ru", HELLO)
    stop = "Process.kill('TERM', Process.pid) if index == 1"
    write("thruway.rb", "before_worker_fork { |index| #{stop} }")
    out, said = IO.pipe
    options = %w[-p 0 -w 4 -C thruway.rb]
    @pids << spawn(BINARY, "serve", ".", *options, out: said, err: said, chdir: @folder)
    said.close
    _, status = Timeout.timeout(PATIENCE_SECONDS) { Process.wait2(@pids.last) }
    assert_predicate status, :success?
    said = Timeout.timeout(PATIENCE_SECONDS) { out.read }
    assert_equal "", said, "it ends: no worker has it open any more"
  end

  def test_workers_that_are_stopped_while_they_boot_end_at_once
    write("config.ru", <<~RUBY)
      begin
        File.write("booting-\#{Process.pid}", "")
        sleep
      rescue SignalException => e
        puts e
      end
    RUBY
    write("thruway.rb", "preload_app! false")
    out, said = IO.pipe
    options = %w[-p 0 -w 2 -C thruway.rb]
    @pids << spawn(BINARY, "serve", ".", *options, out: said, err: said, chdir: @folder)
    said.close
    eventually { Dir[File.join(@folder, "booting-*")].size == 2 }
    assert_predicate stop(@pids.last), :success?
    assert_equal "", Timeout.timeout(PATIENCE_SECONDS) { out.read }
  end

  def test_an_upload_that_cannot_be_kept_is_a_507_and_the_server_goes_on
    write("config.ru", "run ->(env) { [200, {}, [env['rack.input'].read.size.to_s]] }")
    ENV["TMPDIR"] = File.join(@folder, "none")
    start
    upload = { method: "POST", body: "x" * 300_000 }
    assert_equal 507, get("/", **upload).status
    assert_equal 507, get("/", **upload).status
    assert_equal "5", get("/", method: "POST", body: "short").body
    said = "thruway: cannot store a request's body: No such file or directory"
    assert_equal 1, File.read(@log).scan(said).size, "it is said once in a while, not each time"
  ensure
    ENV.delete("TMPDIR")
  end

  def test_an_application_that_raises_at_boot_is_told_in_one_line
    broken = write("config.ru", "run 1\nraise 'no road'\n")
    [[], %w[-w 2], %w[-w 2 -C lazy.rb]].each do |arguments|
      write("lazy.rb", "preload_app! false")
      said = Dir.chdir(@folder) { refusal(broken, "-p", "0", *arguments) }
      line = "the application raised RuntimeError at boot: no road (#{broken}:2:in "
      assert_includes said, "thruway: #{line}", arguments.inspect
      assert_includes said, "hint: set THRUWAY_BACKTRACE=1 to see"
    end
    write("config.ru", "run(")
    assert_match(/SyntaxError at boot: .*config.ru:1/, refusal(broken, "-p", "0"))
  end

  # Ruby 3.3 forgets the exit status if a trap raises while the process exits, even if the error is
  # rescued there. With -d, Ruby reports each raised error.
  def test_a_signal_at_the_end_raises_nothing
    broken = write("config.ru", "raise 'no road'")
    write("lazy.rb", "preload_app! false\nat_exit { Process.kill(:CHLD, $$); sleep 0.05 }")
    command = [BINARY, "serve", broken, "-p", "0", "-w", "2", "-C", File.join(@folder, "lazy.rb")]
    _, said, status = Open3.capture3({ "RUBYOPT" => "-d" }, *command)
    assert_equal 2, status.exitstatus, said
    assert_includes said, "no road"
    assert_empty said.lines.grep(/IOError|EPIPE/)
  end

  def test_a_gem_that_does_not_load_is_told_in_one_line
    FileUtils.mkdir_p(File.join(@folder, "target/debug"))
    copy = File.join(@folder, "target/debug/thruway")
    FileUtils.cp(BINARY, copy)
    write("gem/lib/thruway/launch/early_signals.rb", "")
    write("gem/lib/thruway/cli.rb", 'require "thruway/thruway"')
    _, said, status = Open3.capture3(copy, "serve", write("config.ru", HELLO))
    assert_equal 2, status.exitstatus
    assert_includes said,
                    "thruway: the gem does not load: cannot load such file -- thruway/thruway\n"
    assert_includes said, "\nhint: run make build, which puts the gem beside this binary\n"
  end

  def test_a_promise_of_https_without_an_address_for_it_is_refused
    said = "thruway: hsts needs an address that speaks TLS\n\nhint: add --bind ssl://"
    application = write("config.ru", HELLO)
    [["--hsts"], ["-C", write("hsts.rb", "hsts 60")]].each do |words|
      _, error, status = Open3.capture3(BINARY, "serve", application, "-p", "0", *words)
      assert_equal 2, status.exitstatus, error
      assert error.start_with?(said), error
    end
  end

  def test_without_ruby_the_line_says_so
    _, said, status = Open3.capture3({ "PATH" => "/nowhere" }, BINARY, "serve",
                                     write("config.ru", HELLO))
    assert_equal 2, status.exitstatus
    assert_includes said, "hint: an application needs Ruby 3.1 or later on PATH"
  end

  def test_rackup_and_its_handler_start_the_server
    write("config.ru", HELLO)
    library = File.expand_path("../../lib", __dir__)
    extension = File.expand_path("../../../target/debug/gem", __dir__)
    out, said = IO.pipe
    pid = spawn("ruby", "-I", extension, "-I", library, "-S", "rackup", "-s", "thruway", "-p", "0",
                "-o", "127.0.0.1", "config.ru", chdir: @folder, out: said, err: File::NULL)
    said.close
    @pids << pid
    @address = Timeout.timeout(PATIENCE_SECONDS) { out.gets }[%r{on (http://[^ ,]+)}, 1]
    assert_equal "#{pid} false", get.body
    assert_predicate stop(pid), :success?
  end

  def test_rails_starts_the_server_by_its_name
    skip_without("rails")
    application = File.expand_path("../../../examples/rails_app", __dir__)
    library = %w[../../../target/debug/gem ../../lib].map { |path| File.expand_path(path, __dir__) }
    out, said = IO.pipe
    pid = spawn({ "RUBYLIB" => library.join(":") }, "bin/rails", "server", "-u", "thruway",
                "-b", "127.0.0.1", "-p", "0", "-e", "production", "-P", File.join(@folder, "pid"),
                chdir: application, out: said, err: File::NULL)
    said.close
    @pids << pid
    Timeout.timeout(120) { @address = out.gets[%r{^serving .* on (http://\S+)}, 1] until @address }
    assert_equal "up\n", get("/up").body
    assert_predicate stop(pid, "INT"), :success?
  end
end
