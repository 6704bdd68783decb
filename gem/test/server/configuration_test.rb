# frozen_string_literal: true

require_relative "../commands"

require "thruway/configuration/configuration_file"

# The directives of configuration files, each as in `docs/reference/serve_configuration.md`.
class ConfigurationTest < Minitest::Test
  include Commands

  TABLES = File.read(File.expand_path("../../../docs/reference/serve_configuration.md", __dir__))
  ROWS = TABLES.scan(/^\| `((?:[^`\\]|\\\|)+)` \| (works|ignored|refused) \|/)
               .map { |code, kind| [code.gsub('\|', "|"), kind] }

  # The words of Puma 8.0.2.
  PUMA = %i[
    activate_control_app after_booted after_refork after_stopped after_worker_boot after_worker_fork
    after_worker_shutdown allow_underscore_headers app before_fork before_refork before_restart
    before_thread_exit before_thread_start before_worker_boot before_worker_fork
    before_worker_shutdown bind bind_to_activated_sockets clean_thread_locals clear_binds! cluster
    custom_logger debug default_host directory drain_on_shutdown early_hints enable_keep_alives
    environment extra_runtime_dependencies fiber_per_request first_data_timeout
    force_shutdown_after fork_worker get http_content_length_limit idle_timeout inject
    io_selector_backend load log_formatter log_requests lowlevel_error_handler max_fast_inline
    max_io_threads max_keep_alive mutate_stdout_and_stderr_to_sync_on_write on_booted on_refork
    on_restart on_stopped on_thread_exit on_thread_start on_worker_boot on_worker_fork
    on_worker_shutdown out_of_band persistent_timeout pidfile plugin port preload_app!
    prune_bundler queue_requests quiet rack_url_scheme rackup raise_exception_on_sigterm
    restart_command set_default_host set_remote_address shutdown_debug
    silence_fork_callback_warning silence_single_worker_warning single ssl_bind state_path
    state_permission stdout_redirect supported_http_methods tag threads wait_for_less_busy_worker
    worker_boot_timeout worker_check_interval worker_culling_strategy worker_shutdown_timeout
    worker_timeout workers
  ].freeze

  # Returns how a file with the text is read (works, ignored or refused), and the lines about the
  # text.
  def outcome(text)
    configuration = Thruway::Configuration.new
    path = write("config/file.rb", text)
    file = Dir.chdir(@folder) { Thruway::ConfigurationFile.new(configuration).read(path) }
    configuration.check
    configuration.addresses.each { |address| refuse_address(address) }
    [file.warnings.empty? ? "works" : "ignored", file.warnings]
  rescue Thruway::Failure => e
    ["refused", [e.message]]
  end

  def refuse_address(address)
    _, wrong = Thruway::Engine.listen(address).tap { |descriptor, *| close(descriptor) }
    raise Thruway::Failure, wrong if wrong.include?("names no certificate")
  end

  def close(descriptor)
    IO.for_fd(descriptor).close if descriptor
  end

  # The words that well-known applications and guides put into their files, as they combine them.
  WELL_KNOWN = {
    "Rails 6 and 7" => <<~'RUBY',
      max_threads_count = ENV.fetch("RAILS_MAX_THREADS") { 5 }
      min_threads_count = ENV.fetch("RAILS_MIN_THREADS") { max_threads_count }
      threads min_threads_count, max_threads_count
      worker_timeout 3600 if ENV.fetch("RAILS_ENV", "development") == "development"
      port ENV.fetch("PORT") { 0 }
      environment ENV.fetch("RAILS_ENV") { "development" }
      pidfile ENV.fetch("PIDFILE") { "tmp/pids/server.pid" }
      workers ENV.fetch("WEB_CONCURRENCY") { 2 }
      preload_app!
      plugin :tmp_restart
    RUBY
    "Rails 8" => <<~'RUBY',
      threads_count = ENV.fetch("RAILS_MAX_THREADS", 3)
      threads threads_count, threads_count
      port ENV.fetch("PORT", 0)
      plugin :tmp_restart
      plugin :solid_queue if ENV["SOLID_QUEUE_IN_PUMA"]
      pidfile ENV["PIDFILE"] if ENV["PIDFILE"]
    RUBY
    "Mastodon" => <<~'RUBY',
      persistent_timeout ENV.fetch("PERSISTENT_TIMEOUT") { 20 }.to_i
      threads_count = ENV.fetch("MAX_THREADS") { 5 }.to_i
      threads threads_count, threads_count
      bind "tcp://127.0.0.1:0"
      environment "production"
      workers ENV.fetch("WEB_CONCURRENCY") { 2 }.to_i
      preload_app!
      set_remote_address(proxy_protocol: :v1) if ENV["PROXY_PROTO_V1"] == "true"
      on_worker_boot { 1 }
      plugin :tmp_restart
    RUBY
    "GitLab" => <<~'RUBY',
      rackup "config.ru"
      pidfile "tmp/pids/puma.pid"
      state_path "tmp/pids/puma.state"
      stdout_redirect "puma.stdout.log", "puma.stderr.log", true
      threads 1, 4
      queue_requests false
      bind "tcp://127.0.0.1:0"
      workers 3
      on_restart { 1 }
      before_fork { 1 }
      on_worker_boot { 1 }
      on_worker_shutdown { 1 }
      preload_app!
      tag "gitlab-puma-worker"
      worker_timeout 60
      wait_for_less_busy_worker ENV.fetch("PUMA_WAIT_FOR_LESS_BUSY_WORKER", 0.001).to_f
      nakayoshi_fork unless ENV["DISABLE_PUMA_NAKAYOSHI_FORK"] == "true"
      log_formatter { |text| text }
      lowlevel_error_handler { |error, env| [500, {}, [error.class.name, env.size.to_s]] }
    RUBY
    "Discourse" => <<~'RUBY',
      directory "."
      workers ENV.fetch("PUMA_WORKERS", "4").to_i
      threads 8, 32
      bind "tcp://127.0.0.1:0"
      stdout_redirect "log/out.log", "log/err.log", true
      pidfile "tmp/pids/puma.pid"
      state_path "tmp/pids/puma.state"
      activate_control_app
      worker_timeout 60
      preload_app!
    RUBY
    "Heroku's guide" => <<~'RUBY'
      workers Integer(ENV["WEB_CONCURRENCY"] || 2)
      threads_count = Integer(ENV["RAILS_MAX_THREADS"] || 5)
      threads threads_count, threads_count
      preload_app!
      rackup DefaultRackup if defined?(DefaultRackup)
      rackup DefaultRackup
      port ENV["PORT"] || 0
      environment ENV["RACK_ENV"] || "development"
      on_worker_boot { 1 }
    RUBY
  }.freeze

  def test_files_of_well_known_applications_start
    WELL_KNOWN.each do |name, text|
      kind, lines = outcome(text)
      refute_equal "refused", kind, "#{name}: #{lines}"
    end
  end

  def test_every_word_of_puma_is_in_the_tables_and_does_what_they_say
    write("config/other.rb", "threads 1")
    assert_empty PUMA - ROWS.map { |code, _| code[/\A[a-z_]+!?/].to_sym }
    ROWS.each do |code, kind|
      got, lines = outcome("\n#{code}\n")
      assert_equal kind, got, "#{code}: #{lines}"
      word = code[/\A[a-z_]+!?/]
      next if kind == "works" || code.start_with?("bind ")

      assert_match(%r{config/file\.rb:2(: | has )#{Regexp.escape(word)}}, lines.join("\n"))
      assert_equal 1, lines.size
    end
  end

  def test_an_unknown_word_is_one_line_with_its_place
    write("config.ru", HELLO)
    ["\nworkerz 2", "\nworkerz", "\nself.workerz 2", "\ninject { workerz(&nil) }"].each do |text|
      path = write("config/puma.rb", text)
      assert_equal <<~TEXT, refusal(@folder, "-p", "0")
        thruway: #{File.realpath(path)}:2: unknown directive workerz

        hint: docs/reference/serve_configuration.md lists all directives
      TEXT
    end
  end

  def test_a_word_that_puma_has_dropped_is_named_with_what_stands_for_it
    write("config.ru", HELLO)
    write("config/puma.rb", "daemonize true")
    assert_includes refusal(@folder, "-p", "0"),
                    "hint: Puma 5 removed it: run the server as a service, for example of systemd"
  end

  # An empty Pathname is an empty file or folder.
  def test_paths_and_symbols_are_texts
    write("config.ru", HELLO)
    write("pid", "")
    FileUtils.mkdir(File.join(@folder, "files"))
    write("config/puma.rb", <<~RUBY)
      require "pathname"
      root = Pathname(__dir__).parent
      directory root
      pidfile root + "pid"
      state_path root + "state"
      sendfile root + "files"
      stdout_redirect nil, root + "err"
      rack_url_scheme :https
      health_check :"/up"
    RUBY
    pid = start
    assert_equal ["#{pid}\n", 200],
                 [File.read(File.join(@folder, "pid")), get("/up").status]
    assert_path_exists File.join(@folder, "state")
    assert_predicate stop(pid), :success?
  end

  def test_the_number_for_no_limit_is_puma_s
    { "-1" => nil, ":forever" => nil, ":immediately" => 0, "2" => 2.0 }.each do |word, limit|
      configuration = Thruway::Configuration.new
      path = write("config/puma.rb", "force_shutdown_after(#{word})")
      Thruway::ConfigurationFile.new(configuration).read(path)
      assert_equal [limit], [configuration.drain_seconds], word
    end
  end

  def test_the_variable_for_kept_connections_comes_after_the_file
    ENV["PUMA_PERSISTENT_TIMEOUT"] = " 7 "
    assert_equal 7, Thruway::Configuration.new.keep_alive_seconds
    configuration = Thruway::Configuration.new
    Thruway::ConfigurationFile.new(configuration)
                              .read(write("config/puma.rb", "persistent_timeout 9"))
    assert_equal 9, configuration.keep_alive_seconds
  ensure
    ENV.delete("PUMA_PERSISTENT_TIMEOUT")
  end

  def test_what_a_file_cannot_mean_is_one_line_with_its_place
    write("config.ru", HELLO)
    ["threads", "\nPuma::Const::NONE", "workers 'many'", "supported_http_methods []",
     "bind_to_activated_sockets(", "force_shutdown_after :never", "app 1",
     "state_permission '0600'",
     "immutable_assets 'assets'", "socket_message_limit -1", "socket_ping_interval 1e18",
     "head_timeout Float::NAN", "head_timeout '1x'", "head_limit '1X'"].each do |text|
      path = write("config/puma.rb", text)
      said = refusal(@folder, "-p", "0")
      place = %r{\Athruway: cannot read #{File.realpath(path)}: .*#{File.realpath(path)}:\d}
      assert_match(place, said)
      assert_equal 1, said.lines.size, said
    end
  end

  def test_a_server_does_not_start_where_it_would_fail_open
    write("config.ru", HELLO)
    { "ssl_bind '127.0.0.1', 0, cert: '/no/c', key: 'k'" => "cannot use /no/c: No such file",
      "bind 'ssl://127.0.0.1:0'" => "ssl://127.0.0.1:0 names no certificate",
      "ssl_bind '127.0.0.1', 0, cert_pem: 'c'" => "\"cert_pem\" is not understood in ssl://",
      "ssl_bind '127.0.0.1', 0, cert: 'c', key: \"-----BEGIN PRIVATE KEY-----\\nAA\"" =>
        "thruway: ssl://127.0.0.1:0: key= is a file's name, not what is in the file" }
      .each do |text, reason|
        write("config/puma.rb", text)
        assert_includes refusal(@folder), reason
      end
  end

  def test_origins_that_no_browser_sends_are_refused
    write("config.ru", HELLO)
    ['"shop.example"', '"https://Shop.example"', '"https://shop.example/"', "nil", ":some",
     '"https://*.shop.example"', '"https://shop.example:443"', '"https://a.example", :any']
      .each do |origins|
        path = write("config/puma.rb", "socket_origins #{origins}")
        assert_equal <<~TEXT, refusal(@folder, "-p", "0"), origins
          thruway: #{File.realpath(path)}:1: socket_origins: #{origins.split(', ').last} cannot \
          match an origin: a browser sends the scheme, the host in lower case, and a port that is \
          not the default

          hint: use "https://shop.example", a Regexp, or :any alone
        TEXT
      end
    ['"http://a.example:8080", "null", /a/', ":any", "[:any]", '["app://x"]'].each do |origins|
      kind, lines = outcome("socket_origins #{origins}")
      assert_equal "works", kind, lines
    end
  end

  def test_the_last_word_of_a_file_counts_and_the_command_line_goes_before_it
    write("config.ru", HELLO)
    write("config/puma.rb", <<~RUBY)
      threads 1
      threads 3
      port 0
      bind "unix://two.sock?umask=0117"
      cluster { tag "many" }
      single { tag "one" }
    RUBY
    pid = start(port: [])
    title = File.read("/proc/#{pid}/cmdline").delete("\0").strip
    port = @address[/\d+\z/]
    assert_includes title, "thruway #{Thruway::VERSION} " \
                           "(tcp://127.0.0.1:#{port},unix://two.sock) [one]"
    assert_equal "#{pid} false", get.body
    assert_equal 0o660, File.stat(File.join(@folder, "two.sock")).mode & 0o777
    # A thread sets its own name, so the others may respond earlier.
    eventually do
      threads = Dir["/proc/#{pid}/task/*/comm"].map { |path| File.read(path).chomp }
      threads.grep(/\Athruway-\d\z/).size == 3
    end
    stop(pid)
    refute_path_exists File.join(@folder, "two.sock")
  end

  def with_variables(variables)
    was = variables.to_h { |name, _| [name, ENV.fetch(name, nil)] }
    ENV.update(variables)
    yield Thruway::Configuration.new
  ensure
    ENV.update(was)
  end

  def test_variables_of_puma_count_where_nothing_else_is_said
    { { "WEB_CONCURRENCY" => "3", "MAX_THREADS" => "7" } => [3, 7],
      { "WEB_CONCURRENCY" => " auto " } => [Thruway::Processors.count, 5],
      { "WEB_CONCURRENCY" => "", "MAX_THREADS" => "" } => [0, 5],
      { "PUMA_MAX_THREADS" => "2", "MAX_THREADS" => "7" } => [0, 2],
      { "MIN_THREADS" => "9" } => [0, 9] }.each do |variables, expected|
      with_variables(variables) { |read| assert_equal expected, [read.workers, read.threads] }
    end
    with_variables("WEB_CONCURRENCY" => "3", "MAX_THREADS" => "7") do |configuration|
      configuration.offer(:workers, 1)
      configuration.offer(:threads, 2)
      assert_equal [1, 2], [configuration.workers, configuration.threads]
    end
    with_variables("WEB_CONCURRENCY" => "many") do |configuration|
      error = assert_raises(Thruway::Failure) { configuration.workers }
      assert_includes error.message, "WEB_CONCURRENCY is not a number"
    end
  end

  def test_what_stands_around_an_application_does_what_it_says
    write("config.ru", <<~'RUBY')
      run lambda { |env|
        seen = Thread.current[:seen]
        Thread.current[:seen] = true
        [200, {}, [[env["REMOTE_ADDR"], env["rack.url_scheme"], seen.inspect].join(" ")]]
      }
    RUBY
    write("config/puma.rb", <<~RUBY)
      threads 1
      set_remote_address header: "X-Real-IP"
      supported_http_methods %w[GET]
      rack_url_scheme "https"
      fiber_per_request
      stdout_redirect "out.log", nil, true
      log_requests
    RUBY
    out, said = IO.pipe
    @pids << spawn(BINARY, "serve", ".", "-b", "tcp://127.0.0.1:0", "--pidfile", "pid",
                   out: said, err: said, chdir: @folder)
    said.close
    log = File.join(@folder, "out.log")
    eventually { File.file?(log) && File.read(log).include?("serving ") }
    @address = File.read(log)[%r{on (http://\S+)}, 1]
    2.times { assert_equal "10.1.2.3 https nil", get("/", "X-Real-IP: 10.1.2.3, 8.8.8.8\r\n").body }
    assert_equal "127.0.0.1 https nil", get.body
    assert_equal 501, get("/", method: "POST", body: "x").status
    # A line is written after its response.
    eventually { File.read(log).include?('"GET / HTTP/1.1" 200') }
    File.rename(log, "#{log}.1")
    Process.kill("HUP", @pids.last)
    eventually do
      get("/rotated")
      File.file?(log) && File.read(log).include?("/rotated")
    end
    assert_predicate stop(@pids.last), :success?
    assert_equal "", out.read
  end

  def test_hooks_of_threads_and_of_the_end_are_called
    write("config.ru", HELLO)
    write("config/puma.rb", <<~RUBY)
      log = ->(text) { File.write("hooks", "\#{text}\\n", mode: "a") }
      threads 2
      before_thread_start { log["start"] }
      before_thread_exit { log["exit"] }
      after_worker_shutdown { |worker| log["\#{worker.index} \#{worker.process_status.success?}"] }
      after_stopped { log["stopped"] }
    RUBY
    pid = start("-w", "1")
    get
    assert_predicate stop(pid), :success?
    hooks = File.readlines(File.join(@folder, "hooks"), chomp: true)
    assert_equal ["0 true", "exit", "exit", "start", "start", "stopped"], hooks.sort
    assert_equal ["0 true", "stopped"], hooks.last(2)
  end

  def test_a_worker_that_does_not_boot_in_time_starts_anew
    write("config.ru", "sleep if File.exist?('slow')\n#{HELLO}")
    write("slow", "")
    write("config/puma.rb", "preload_app! false\nworker_boot_timeout 1\nworkers 1\nport 0")
    pid = spawn(BINARY, "serve", ".", chdir: @folder, out: "/dev/null", err: "#{@folder}/log")
    @pids << pid
    eventually { File.read("#{@folder}/log").include?("worker 0 has not booted within 1 s") }
    eventually { File.read("#{@folder}/log").include?("worker 0 ended (signal KILL)") }
    assert_predicate stop(pid), :success?
  end

  def test_limits_of_heads_have_names
    write("config.ru", HELLO)
    write("config/puma.rb", "request_line_limit '50'\nhead_limit '0.2K'\nhead_fields_limit 3")
    start
    assert_equal 200, get("/#{"x" * 20}").status
    assert_equal 414, get("/#{"x" * 50}").status
    assert_equal 431, get("/", "A: #{"x" * 200}\r\n").status
    assert_equal 431, get("/", "A: b\r\nC: d\r\nE: f\r\n").status
    start("--head-fields-limit", "4")
    assert_equal 200, get("/", "A: b\r\nC: d\r\nE: f\r\n").status
    write("config/puma.rb", "head_fields_limit 129")
    assert_includes refusal(@folder), "cannot take heads of 129 fields: it must be 1 to 128"
  end

  # The ways in which real files use Puma's internals.
  def test_files_may_use_what_stands_behind_puma_s_words
    write("config.ru", HELLO)
    configuration = read(<<~RUBY)
      @options[:pidfile] = false
      @options[:max_threads] = 7
      @options[:min_threads] = 2
      @options[:preload_app] = false if Puma::Const::PUMA_VERSION >= "7"
      @options[:binds] << "tcp://127.0.0.1:0"
      workers @options.fetch(:workers, 3) unless Puma.jruby? || Puma.windows?
      raise "a local variable of ours" if defined?(text) || defined?(path)
      raise "a constant of ours" if defined?(Server) || defined?(Client)
    RUBY
    assert_equal [nil, 7, false, 3, ["tcp://127.0.0.1:0"]],
                 [configuration.pidfile, configuration.threads, configuration.preload,
                  configuration.workers, configuration.binds]
    refute Object.const_defined?(:Puma), "a library would take the server for Puma"
    { "@options[:nothing] = 1" => "unknown option @options[:nothing]",
      "@options[:get] = 1" => "unknown option @options[:get]",
      "@options[:on_restart] = [1]" => "on_restart", "before_fork(:key) { 1 }" => "takes no key",
      "on_worker_boot(1) { 1 }" => "a key must be a String or a Symbol",
      "queue_requests true, 1" => "queue_requests takes one value" }.each do |text, reason|
        assert_includes outcome(text).last.first, reason
      end
  end

  def read(text)
    configuration = Thruway::Configuration.new
    path = write("config/file.rb", text)
    Dir.chdir(@folder) { Thruway::ConfigurationFile.new(configuration).read(path) }
    configuration
  end

  def test_hooks_with_a_key_share_a_hash
    configuration = read(<<~RUBY)
      on_worker_boot(:cable) { |index, data| data[:boot] = index }
      on_worker_boot("cable") { |_, data| data[:boot] += 1 }
      before_worker_shutdown(:other) { |_, data| $stderr.puts(data.inspect) }
      on_worker_shutdown(:cable) { |index, data| $stderr.puts([index, data].inspect) }
    RUBY
    configuration.run_hooks(:before_worker_boot, 4)
    said = stderr_of { configuration.run_hooks(:before_worker_shutdown, 6) }
    assert_equal ["{}\n", "[6, {:boot=>5}]\n"], said.gsub("boot: ", ":boot=>").lines
  end

  ENVIRONMENTS = %w[APP_ENV RACK_ENV RAILS_ENV].freeze

  def test_variables_name_the_environment_in_the_order_of_puma
    { ["a", "b", "c"] => "a", [nil, "b", "c"] => "b", ["", "b", "c"] => "b", [nil, nil, "c"] => "c",
      ["", " ", ""] => "development" }.each do |values, expected|
        with_variables(ENVIRONMENTS.zip(values).to_h) do |configuration|
          assert_equal expected, configuration.environment
          configuration.offer(:environment, "d")
          assert_equal "d", configuration.environment
        end
      end
  end

  def test_the_file_of_the_environment_comes_before_the_common_one
    write("config.ru", "run ->(_) { [200, {}, [[FROM, ENV['RACK_ENV']].join(' ')]] }")
    write("config/puma.rb", "::FROM = 'common'")
    write("config/puma/production.rb", "::FROM = 'own'")
    variables = ENVIRONMENTS.to_h { |name| [name, nil] }
    with_variables(variables.merge("RACK_ENV" => "production", "RAILS_ENV" => "test")) { start }
    assert_equal "own production", get.body
    with_variables(variables.merge("APP_ENV" => "staging")) { start }
    assert_equal "common staging", get.body
    write("config/thruway.rb", "::FROM = 'ours'")
    start("-e", "production")
    assert_equal "ours production", get.body
  end

  def test_a_port_goes_with_binds_and_the_number_of_workers_may_be_that_of_processors
    write("config.ru", HELLO)
    write("config/puma.rb", "bind 'tcp://127.0.0.1:1'")
    start("-w", "auto", "-b", "unix:#{@folder}/one.sock", "-b", "tcp://:0/?unknown=1")
    assert_equal "true", get.body.split.last
    @address = "unix://#{@folder}/one.sock"
    assert_equal 200, get.status
    assert_includes refusal(@folder, "-w", "many"), "must be auto, or a number from 0 to 1024"
  end
end
