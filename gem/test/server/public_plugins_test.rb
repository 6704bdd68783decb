# frozen_string_literal: true

require_relative "../commands"
require_relative "../ports"

# Plugins of Puma from their repositories. `THRUWAY_PLUGINS` names a folder with checkouts, each
# under the name of its repository. A missing plugin is skipped. If a plugin needs a missing
# library, such as an agent, a recorder replaces the library.
class PublicPluginsTest < Minitest::Test
  include Commands
  include Ports

  SOURCES = ENV.fetch("THRUWAY_PLUGINS", nil)
  # Puma's own library. Plugins for later versions do not run with those before 6.
  HAS_PUMA = Gem::Specification.find_all_by_name("puma", ">= 6").any?

  # Records the datagrams that a plugin sends to `STATSD_HOST`.
  def setup
    super
    @datagrams = UDPSocket.new
    @datagrams.bind("127.0.0.1", 0)
  end

  def teardown
    super
    @datagrams.close
  end

  def source(repository, file = "")
    path = File.join(SOURCES.to_s, repository, file)
    skip "#{repository} is not in THRUWAY_PLUGINS" unless SOURCES && File.exist?(path)
    path
  end

  # Starts a server with the libraries of `repositories` and such words. The stand-in for Puma is
  # used, or Puma's own library.
  def start_with(words, *repositories, own: false, arguments: [], libraries: {})
    skip "there is no gem puma" if own && !HAS_PUMA
    folders = repositories.map { |one| source(one, "lib") }
    own ? FileUtils.rm_f("#{@folder}/Gemfile") : write("Gemfile", "")
    libraries.each { |name, text| write("stand-ins/#{name}.rb", text) }
    write("config.ru", HELLO)
    write("config/puma.rb", <<~RUBY)
      $LOAD_PATH.unshift(*#{["#{@folder}/stand-ins", *folders].inspect})
      #{words}
    RUBY
    start("-e", "production", *arguments)
  end

  # Runs the block for a single process and for a cluster, with the stand-in and with Puma itself.
  def in_each_way(owns: [false, true])
    owns.product([0, 2]) do |own, workers|
      next if own && !HAS_PUMA

      yield own, workers
      @pids.each { |pid| stop(pid) if Process.kill(0, pid) rescue Errno::ESRCH }
      @pids.clear
    end
  end

  def datagrams
    Timeout.timeout(PATIENCE_SECONDS) { @datagrams.recv(4096) }
  end

  def log = File.read(@log)

  def test_statsd_sends_statistics
    source("puma-plugin-statsd")
    in_each_way do |own, workers|
      start_with(<<~RUBY, "puma-plugin-statsd", own: own)
        ENV.update("STATSD_PORT" => "#{@datagrams.addr[1]}", "STATSD_INTERVAL_SECONDS" => "0.1")
        workers #{workers}
        threads 3, 3
        plugin :statsd
        # The plugin waits for five seconds first.
        Puma::Plugins.find("statsd").class_eval { def sleep(seconds) = super([seconds, 0.1].min) }
      RUBY
      get
      # The previous server may also have sent some.
      expected = "puma.max_threads:#{[workers, 1].max * 3}|g"
      eventually { datagrams == expected }
    end
  end

  def test_telemetry_writes_statistics
    in_each_way do |own, workers|
      start_with(<<~RUBY, "puma-plugin-telemetry", own: own)
        workers #{workers}
        threads 3, 3
        plugin :telemetry
        Puma::Plugin::Telemetry.configure do |config|
          config.enabled = true
          config.initial_delay = 0
          config.frequency = 0.1
          config.add_target(:io, formatter: :json, transform: :passthrough, io: $stderr)
        end
      RUBY
      eventually { log.include?("workers.max_threads") }
      assert_includes log, "\"workers.max_threads\":#{[workers, 1].max * 3}"
    end
  end

  def test_telemetry_of_sockets_names_what_is_missing
    start_with(<<~RUBY, "puma-plugin-telemetry")
      plugin :telemetry
      Puma::Plugin::Telemetry.configure do |config|
        config.enabled = true
        config.initial_delay = 0
        config.frequency = 0.1
        config.socket_telemetry!
      end
    RUBY
    eventually { log.include?("undefined method") }
    assert_match(/plugin=telemetry.*undefined method `binder' for Puma's launcher in Thruway: /,
                 log)
  end

  YABEDA = <<~RUBY
    module Yabeda
      Gauge = Struct.new(:name) { def set(labels, value) = VALUES[[name, labels]] = value }
      VALUES = {}
      class << self
        def configure(&block) = instance_eval(&block)
        def group(name) = @group = name
        def collect(&block) = COLLECTORS << block
        def gauge(name, **)
          gauge = Gauge.new(:"\#{@group}_\#{name}")
          define_singleton_method(gauge.name) { gauge }
        end
      end
      COLLECTORS = []
    end
  RUBY

  def test_yabeda_reads_the_control_application
    in_each_way do |own, workers|
      start_with(<<~RUBY, "yabeda-puma-plugin", own: own, libraries: { "yabeda" => YABEDA })
        workers #{workers}
        threads 3, 3
        activate_control_app "unix://#{@folder}/ctl", auth_token: "t"
        plugin :yabeda
        after_booted do
          Thread.new do
            Yabeda::COLLECTORS.each { |one| Yabeda.instance_eval(&one) }
            File.write("values", Yabeda::VALUES.inspect)
          end
        end
      RUBY
      eventually { File.exist?("#{@folder}/values") && !File.empty?("#{@folder}/values") }
      values = File.read("#{@folder}/values")
      assert_match(/:puma_max_threads, \{:?"?index"?(=>|: )[01]\}\] ?=> ?3/, values)
      assert_equal workers.positive?, values.include?("puma_booted_workers")
      FileUtils.rm_f("#{@folder}/values")
    end
  end

  EXPORTER = <<~RUBY
    module Yabeda
      module Prometheus
        class Exporter
          def self.rack_app(*, path:) = ->(env) { [200, {}, ["\#{path} \#{env["PATH_INFO"]}"]] }
        end
      end
    end
  RUBY

  def answer_of(port, path)
    eventually do
      TCPSocket.open("127.0.0.1", port) do |socket|
        socket.write("GET #{path} HTTP/1.0\r\n\r\n")
        @answer = socket.read
      end
    rescue Errno::ECONNREFUSED, Errno::ECONNRESET
      false
    end
    @answer
  end

  def test_yabeda_prometheus_serves_metrics_and_restarts_with_the_server
    port = free_port
    pid = start_with(<<~RUBY, "yabeda-puma-plugin", own: true, libraries:
      workers 1
      plugin :yabeda_prometheus
      prometheus_exporter_url "tcp://127.0.0.1:#{port}/metrics"
    RUBY
                     { "yabeda/prometheus/exporter" => EXPORTER })
    assert_includes answer_of(port, "/metrics"), "/metrics /metrics"
    Process.kill("USR2", pid)
    eventually { log.include?("hot restart: done") }
    assert_includes answer_of(port, "/metrics"), "/metrics /metrics"
    assert_predicate stop(pid), :success?
    assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("127.0.0.1", port) }
  end

  def test_metrics_serves_statistics
    source("client_ruby")
    port = free_port
    [0, 2].each do |workers|
      pid = start_with(<<~RUBY, "puma-metrics", "client_ruby", own: true)
        workers #{workers}
        threads 3, 3
        plugin "metrics"
        metrics_url "tcp://127.0.0.1:#{port}"
      RUBY
      get
      assert_match(/^puma_max_threads\{index="0"\} 3/, answer_of(port, "/"))
      Process.kill("USR2", pid)
      get
      assert_predicate stop(pid), :success?
    end
  end

  def test_a_plugin_whose_part_of_puma_is_missing_names_it
    path = source("puma-metrics", "lib")
    clients = source("client_ruby", "lib")
    write("Gemfile", "")
    write("config.ru", HELLO)
    write("config/puma.rb", "$LOAD_PATH.unshift(#{path.inspect}, #{clients.inspect})\n" \
                            "plugin :metrics\nmetrics_url 'tcp://127.0.0.1:1'")
    assert_includes refusal(@folder, "-p", "0"),
                    "plugin :metrics cannot start: uninitialized constant Puma::Server: " \
                    "it is a part of Puma itself; with gem \"puma\" in the Gemfile"
  end

  def test_acme_is_refused_by_name
    path = source("puma-acme", "lib")
    write("Gemfile", "")
    write("config.ru", HELLO)
    client = "module Acme; class Client; class Error < StandardError; end; module Resources; " \
             "module Challenges; module HTTP01; CHALLENGE_TYPE = 'http-01'; end; end; end; end; end"
    write("stand-ins/acme-client.rb", client)
    write("config/puma.rb", "$LOAD_PATH.unshift('#{@folder}/stand-ins', #{path.inspect})\n" \
                            "require 'puma-acme'\nplugin :acme\nacme_server_name 'a.example'")
    assert_match(/puma/, refusal(@folder, "-p", "0"))
  end

  def test_barnes_reports
    source("statsd")
    skip "there is no gem puma" unless HAS_PUMA
    [0, 2].each do |workers|
      start_with(<<~RUBY, "barnes", "statsd", own: true)
        ENV.update("PORT" => "#{@datagrams.addr[1]}", "DYNO" => "web.1")
        workers #{workers}
        threads 3, 3
        require "json"
        require "barnes"
        start = -> { Barnes.start(interval: 0.1) }
        #{workers.zero? ? "after_booted(&start)" : "before_fork(&start)"}
      RUBY
      seen = +""
      seen << datagrams << "\n" until seen.include?("threads.max")
      assert_match(/threads\.max:#{[workers, 1].max * 3}\|g/, seen)
      stop(@pids.pop)
    end
  end

  def test_the_worker_killer_ends_the_largest_worker
    source("get_process_mem")
    pid = start_with(<<~RUBY, "puma_worker_killer", "get_process_mem", own: true)
      workers 2
      before_fork do
        require "puma_worker_killer"
        PumaWorkerKiller.config do |config|
          config.ram = 1
          config.frequency = 0.2
          config.rolling_restart_frequency = false
        end
        PumaWorkerKiller.start
      end
    RUBY
    eventually { log.include?("Sending TERM to pid") }
    ended = log[/Sending TERM to pid (\d+)/, 1]
    refute_equal pid.to_s, ended
    eventually { log.match?(/worker [01] ended .*starting another/) }
  end

  AGENT = <<~RUBY
    module Honeybadger
      module InstrumentationHelper
        def metric_source(*) = nil
        def gauge(name, context, value) = File.write("gauge-\#{name}", value.call.to_s)
      end
      Settings = Struct.new(:nothing) do
        def collection_interval(*) = 1
        def load_plugin_insights?(*, feature:) = feature == :metrics
      end
      def self.config = Settings.new
    end
  RUBY

  def test_honeybadger_records_statistics
    in_each_way do |own, workers|
      start_with(<<~RUBY, own: own, libraries: { "honeybadger/instrumentation_helper" => AGENT })
        workers #{workers}
        threads 3, 3
        require "json"
        require "puma/plugin" if #{own}
        $LOAD_PATH.unshift #{source("honeybadger-ruby", "lib").inspect}
        $LOAD_PATH.unshift "#{@folder}/stand-ins"
        plugin :honeybadger
      RUBY
      eventually { File.exist?("#{@folder}/gauge-max_threads") }
      eventually { File.read("#{@folder}/gauge-max_threads") == "3" }
      FileUtils.rm_f("#{@folder}/gauge-max_threads")
    end
  end

  def test_appsignal_sends_statistics
    in_each_way do |own, workers|
      start_with(<<~RUBY, "appsignal-ruby", own: own)
        ENV["APPSIGNAL_STATSD_PORT"] = "#{@datagrams.addr[1]}"
        workers #{workers}
        threads 3, 3
        plugin :appsignal
        Puma::Plugins.find("appsignal").class_eval { def sleep_time = 0.1 }
      RUBY
      # The previous server may also have sent some.
      expected = "puma_threads:#{[workers, 1].max * 3}|g|#type:max"
      eventually { datagrams.start_with?(expected) }
    end
  end

  LITESTREAM = <<~RUBY
    module Litestream
      module Commands
        def self.replicate(async:)
          File.write("replicates", Process.pid.to_s)
          trap("INT") { exit!(0) }
          sleep
        end
      end
    end
  RUBY

  def test_litestream_runs_with_the_server
    in_each_way do |own, workers|
      libraries = { "litestream" => LITESTREAM }
      pid = start_with(<<~RUBY, "litestream-ruby", own: own, libraries: libraries)
        workers #{workers}
        require "litestream"
        plugin :litestream
      RUBY
      eventually { File.exist?("#{@folder}/replicates") && !File.empty?("#{@folder}/replicates") }
      child = File.read("#{@folder}/replicates").to_i
      assert_predicate stop(pid), :success?
      assert_includes log, "Stopping Litestream..."
      assert_raises(Errno::ESRCH) { Process.kill(0, child) }
      FileUtils.rm_f("#{@folder}/replicates")
    end
  end

  def test_tailwindcss_watches_with_the_server
    write("bin/rails", "#!/bin/sh\necho $$ > watches\nexec cat\n")
    File.chmod(0o755, "#{@folder}/bin/rails")
    in_each_way do |own, workers|
      pid = start_with(<<~RUBY, own: own, libraries: { "tailwindcss/commands" => "" })
        workers #{workers}
        $LOAD_PATH.push #{source("tailwindcss-rails", "lib").inspect}
        plugin :tailwindcss
      RUBY
      eventually { File.exist?("#{@folder}/watches") && !File.empty?("#{@folder}/watches") }
      watcher = File.read("#{@folder}/watches").to_i
      assert_predicate stop(pid), :success?
      assert_includes log, "Stopping tailwind..."
      Process.kill("KILL", watcher) rescue Errno::ESRCH
      FileUtils.rm_f("#{@folder}/watches")
    end
  end

  # Puma's own plugins have parts in Thruway, which take their names. Here they run as they are.
  def test_the_plugins_of_puma_itself_run_too
    FileUtils.mkdir_p("#{@folder}/stand-ins/puma/plugin")
    { "plugin/tmp_restart" => "plugin/own_restart", "plugin/systemd" => "plugin/own_systemd",
      "sd_notify" => "sd_notify" }.each do |from, to|
        FileUtils.cp(source("puma", "lib/puma/#{from}.rb"), "#{@folder}/stand-ins/puma/#{to}.rb")
      end
    # The files require their neighbours by place.
    write("stand-ins/puma/plugin.rb", "require 'puma/plugin'")
    in_each_way(owns: [false]) do |own, workers|
      FileUtils.mkdir_p("#{@folder}/tmp")
      socket = Socket.new(:UNIX, :DGRAM)
      socket.bind(Socket.sockaddr_un("#{@folder}/notify-#{workers}"))
      pid = start_with(<<~RUBY, own: own)
        workers #{workers}
        plugin :own_restart
        # The server takes systemd's variable for itself before it serves.
        after_booted { ENV["NOTIFY_SOCKET"] = "#{@folder}/notify-#{workers}" }
        plugin :own_systemd
      RUBY
      seen = +""
      eventually { (seen << socket.recv(1000)).match?(/READY=1.*threads/m) }
      future = Time.now + 10
      File.utime(future, future, "#{@folder}/tmp/restart.txt")
      eventually { (seen << socket.recv(1000)).match?(/RELOADING=1.*READY=1/m) }
      assert_equal 200, get.status
      assert_predicate stop(pid), :success?
      socket.close
    end
  end

  def test_the_status_command_shows_the_server
    source("puma-status")
    start_with("workers 2\nthreads 3, 3\nstate_path 'state'\n" \
               "activate_control_app 'tcp://127.0.0.1:0', auth_token: 't'")
    get
    write("stand-ins/parallel.rb",
          "module Parallel; def self.map(all, **) = all.map { |one| yield one }; end")
    write("stand-ins/net_x/http_unix.rb",
          "require 'net/http'\nmodule NetX; HTTPUnix = Class.new(Net::HTTP); end")
    out, said, status = Open3.capture3({ "NO_COLOR" => "1" }, "ruby", "-I#{@folder}/stand-ins",
                                       "-I#{source("puma-status", "lib")}", "-rpuma-status",
                                       "-e", "run", "#{@folder}/state", chdir: @folder)
    assert_predicate status, :success?, said
    assert_includes out, "Version: 8.0.2/ruby"
    assert_equal 2, out.scan("└").size, out
  end
end
