# frozen_string_literal: true

require_relative "../restarting"

# Blocks of the configuration that are called at certain moments, and servers whose blocks raise.
class HooksTest < Minitest::Test
  include Restarting

  KINDS = [[], %w[-w 1]].freeze

  # The ways in which a block does not return.
  DEEDS = { "raise" => "raise \"caf\\xE9 is away\"",
            "exception" => "raise Class.new(Exception), 'away'",
            "throw" => "throw :exit, 7", "exit" => "exit 7", "abort" => "abort",
            "break" => "Proc.new { return }.call" }.freeze

  OF_SUPERVISOR = %w[before_fork before_worker_fork after_worker_fork after_worker_shutdown
                     after_booted before_restart].freeze
  OF_WORKERS = %w[before_worker_boot before_worker_shutdown before_thread_start
                  before_thread_exit].freeze

  # Makes each hook misbehave, and record that the next hook is called nevertheless.
  def misbehave(hooks, deed)
    lines = hooks.flat_map do |hook|
      ["#{hook} { |*| #{deed} }", "#{hook} { |*| File.write('called', \"#{hook}\\n\", mode: 'a') }"]
    end
    write("config/puma.rb", lines.join("\n"))
  end

  # A message of the application may have any bytes.
  def log = File.binread(@log)

  def called = File.read(File.join(@folder, "called")).split

  def test_a_hook_that_raises_costs_nothing_but_a_line
    KINDS.product(DEEDS.to_a).each do |arguments, (name, deed)|
      hooks = OF_SUPERVISOR + OF_WORKERS
      # There `exit` ends the process.
      hooks -= %w[before_worker_boot] if %w[exit abort].include?(name)
      misbehave(hooks, deed)
      pid = start_version("v1", *arguments)
      if arguments.any?
        worker = version_and_pid.last
        Process.kill("KILL", worker)
        eventually { up? && version_and_pid.last != worker }
        restart(pid, "URG", "refork")
      end
      restart(pid, "USR2", arguments.any? && "hot restart", to: "v2")
      assert_predicate stop(pid), :success?
      assert_includes log, "the hook before_restart raised"
      skipped = arguments.any? ? [] : hooks.grep(/fork|worker/)
      assert_empty hooks - skipped - called, "#{name}: the next hook is called, too"
      File.delete(File.join(@folder, "called"))
    end
  end

  def up?
    get.status == 200
  rescue SystemCallError, EOFError, NoMethodError
    false
  end

  def test_a_hook_that_ends_its_thread_does_not_keep_the_server_from_stopping
    KINDS.product(["Thread.exit", "raise Interrupt"]).each do |arguments, deed|
      write("config/puma.rb", "before_thread_exit { #{deed} }")
      pid = start_version("v1", *arguments)
      assert_equal 200, get.status
      assert_predicate stop(pid), :success?
      write("config/puma.rb", "before_thread_start { #{deed} }")
      pid = start_version("v1", *arguments)
      assert_equal 200, get.status if deed == "raise Interrupt"
      eventually { log.include?("ended unexpectedly (killed)") } if deed == "Thread.exit"
      assert_predicate stop(pid), :success?
    end
  end

  def test_a_hook_may_send_requests_to_the_server_that_has_booted
    KINDS.each do |arguments|
      write("config.ru", HELLO)
      write("config/puma.rb", <<~RUBY)
        bind "unix://#{@folder}/own.sock"
        after_booted do
          client = UNIXSocket.new("#{@folder}/own.sock")
          client.write("GET / HTTP/1.0\\r\\n\\r\\n")
          File.write("warm", client.wait_readable(#{PATIENCE_SECONDS}) ? client.gets : "no answer")
        end
      RUBY
      pid = start(*arguments, port: [])
      eventually { File.exist?("#{@folder}/warm") && !File.empty?("#{@folder}/warm") }
      assert_equal "HTTP/1.1 200 OK\r\n", File.read("#{@folder}/warm")
      assert_predicate stop(pid), :success?
      File.delete("#{@folder}/warm")
    end
  end

  def test_a_hook_after_the_end_does_not_change_the_status
    KINDS.product(DEEDS.values).each do |arguments, deed|
      misbehave(%w[after_stopped], deed)
      assert_predicate stop(start_version("v1", *arguments)), :success?
      assert_equal %w[after_stopped], called
      File.delete(File.join(@folder, "called"))
    end
  end

  def test_a_worker_may_exit_in_its_hook_and_another_is_tried
    write("config/puma.rb", <<~'RUBY')
      before_worker_boot { |_| abort "no database" if File.exist?("away") }
    RUBY
    pid = start_version("v1", "-w", "1")
    write("away", "")
    logged("ended (exit 1)") { Process.kill("KILL", version_and_pid.last) }
    File.delete(File.join(@folder, "away"))
    eventually { up? }
    assert_predicate stop(pid), :success?
  end

  def test_callbacks_of_a_response_that_raise_cost_no_request
    (DEEDS.values - [DEEDS["break"]]).each do |deed|
      write("config.ru", <<~RUBY)
        run ->(env) {
          2.times do
            env["rack.response_finished"] << ->(*) { #{deed} }
            (env["rack.after_reply"] ||= []) << -> { #{deed} }
          end
          raise "failed" if env["PATH_INFO"] == "/raise"
          [200, {}, [Process.pid.to_s]]
        }
      RUBY
      write("config/puma.rb", "lowlevel_error_handler { |*| #{deed} }\nlog_requests\n" \
                              "log_formatter { |_| #{deed} }\n")
      KINDS.each do |arguments|
        pid = start(*arguments, "-t", "1")
        client = connect
        served = Array.new(3) { client.request.body.to_i }
        assert_equal 500, get("/raise").status
        assert_equal served, Array.new(3) { get.body.to_i }
        assert_predicate stop(pid), :success?
        refute_includes log, "a thread of the server ended unexpectedly"
      end
    end
  end

  def test_a_server_that_has_served_goes_on_when_no_worker_boots
    write("config/puma.rb", "preload_app! false\n")
    %w[-w\ 1 -w\ 2].each do |arguments|
      pid = start_version("v1", *arguments.split)
      write("broken", "")
      logged("ended (exit 2)") { worker_pids(pid).each { |worker| Process.kill("KILL", worker) } }
      File.delete(File.join(@folder, "broken"))
      eventually { up? }
      assert_predicate stop(pid), :success?
    end
  end

  def test_a_server_that_has_never_served_ends_when_its_application_does_not_boot
    write("config.ru", VERSIONED)
    write("broken", "")
    write("config/puma.rb", "preload_app! false\n")
    assert_includes refusal(@folder, "-w", "2", "-p", "0"), "it does not boot"
  end

  def test_a_worker_boots_its_application_after_its_hooks
    write("config.ru", "seen = $hooked\nrun ->(_) { [200, {}, [seen.inspect]] }")
    { "true" => "nil", "false" => "0" }.each do |preload, seen|
      write("config/puma.rb", "preload_app! #{preload}\nbefore_worker_boot { |i| $hooked = i }\n")
      pid = start("-w", "1")
      assert_equal seen, get.body
      assert_predicate stop(pid), :success?
    end
  end
end
