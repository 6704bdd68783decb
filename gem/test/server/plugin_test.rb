# frozen_string_literal: true

require_relative "../commands"

# Plugins of Puma, each in the file `puma/plugin/NAME.rb` of its gem.
class PluginTest < Minitest::Test
  include Commands

  # A plugin like solid_queue's: a child does the work, and each side watches the other.
  QUEUE = <<~'RUBY'
    require "puma/plugin"

    module Puma
      class DSL
        def queue_mode(mode = :fork)
          @options[:queue_mode] = mode.to_sym
        end
      end
    end

    Puma::Plugin.create do
      attr_reader :queue_pid, :log_writer

      def start(launcher)
        @log_writer = launcher.log_writer
        File.write("mode", launcher.options[:queue_mode].inspect)
        in_background { monitor }
        old = Gem::Version.new(Puma::Const::VERSION) < Gem::Version.new("7")
        raise "it is an old Puma" if old

        launcher.events.after_booted do
          @queue_pid = fork do
            trap("INT") { File.write("ended-#{$$}", ""); exit!(0) }
            File.write("queue-#{$$}", Process.ppid.to_s)
            sleep
          end
        end
        launcher.events.after_stopped { stop_queue }
        launcher.events.before_restart { stop_queue }
      end

      private

      def stop_queue
        return unless queue_pid

        log_writer.log "Stopping the queue"
        Process.kill(:INT, queue_pid)
        Process.wait(queue_pid)
      rescue Errno::ECHILD, Errno::ESRCH
        nil
      end

      def monitor
        sleep 0.01 until queue_pid && dead?
        log_writer.log "The queue has gone away"
        Process.kill(:INT, $$)
      end

      def dead?
        !Process.waitpid(queue_pid, Process::WNOHANG).nil?
      rescue Errno::ECHILD
        true
      end
    end
  RUBY

  OTHER = <<~'RUBY'
    require "puma"
    Puma::Plugin.create do
      def config(dsl)
        dsl.threads 3
      end

      def start(launcher)
        launcher.events.on_booted do
          File.write("stats", [Puma.stats_hash[:versions].key?(:ruby), launcher.stats.size,
                               launcher.options[:workers], launcher.options[:control_url],
                               Puma.stats[0]].inspect)
        end
      end
    end
  RUBY

  def start_with(words, *arguments, **options)
    write("config.ru", HELLO)
    write("Gemfile", "")
    write("lib/puma/plugin/queue.rb", QUEUE)
    write("lib/puma/plugin/other.rb", OTHER)
    write("config/puma.rb", "$LOAD_PATH.unshift File.expand_path('lib')\n#{words}")
    start(*arguments, **options)
  end

  # Returns the queue's process after its start.
  def queue(seen = [])
    found = nil
    eventually do
      found = Dir["#{@folder}/queue-*"].map { |path| path[/\d+\z/].to_i } - seen
      found.any? && !File.empty?("#{@folder}/queue-#{found.first}")
    end
    found.first
  end

  def ended?(pid) = File.exist?("#{@folder}/ended-#{pid}")

  def test_a_plugin_that_forks_is_ended_with_the_server
    ["workers 0", "workers 2"].each do |words|
      pid = start_with("plugin :queue\nqueue_mode\n#{words}")
      child = queue
      assert_equal pid.to_s, File.read("#{@folder}/queue-#{child}")
      assert_equal ":fork", File.read("#{@folder}/mode")
      assert_equal 200, get.status
      assert_predicate stop(pid), :success?
      assert ended?(child), File.read(@log)
      assert_includes File.read(@log), "thruway: Stopping the queue"
      FileUtils.rm_f(Dir["#{@folder}/queue-*"])
    end
  end

  def test_a_hot_restart_starts_it_anew
    pid = start_with("plugin :queue\nworkers 1")
    first = queue
    # The file is read again, and starts no other.
    write("config/puma.rb", "#{File.read("#{@folder}/config/puma.rb")}\ntag 'new'")
    Process.kill("HUP", pid)
    eventually { File.read(@log).include?("reload: done") }
    Process.kill("USR2", pid)
    second = queue([first])
    assert ended?(first)
    assert_equal pid.to_s, File.read("#{@folder}/queue-#{second}")
    assert_predicate stop(pid), :success?
    assert ended?(second)
  end

  def test_a_server_ends_when_its_plugin_says_so
    pid = start_with("plugin :queue\nworkers 1")
    Process.kill("KILL", queue)
    _, status = Timeout.timeout(PATIENCE_SECONDS) { Process.wait2(pid) }
    assert_predicate status, :success?
    assert_includes File.read(@log), "The queue has gone away"
  end

  def test_a_plugin_has_words_options_and_statistics
    start_with(<<~RUBY, "-w", "1")
      plugin "other"
      plugin :systemd
      plugin :tmp_restart
      activate_control_app "unix://ctl", no_token: true
    RUBY
    eventually { File.exist?("#{@folder}/stats") && !File.empty?("#{@folder}/stats") }
    assert_equal '[true, 7, 1, "unix://ctl", "{"]', File.read("#{@folder}/stats")
  end

  # A plugin that reads all attributes of a launcher, and records the states of the serving process.
  OBSERVER = <<~'RUBY'
    class Puma::DSL
      def compress(level) = @options[:level] = level
      def observe(path)
        threads 2, 2
        before_fork { File.write(path, "forks") }
      end
    end

    Puma::Plugin.create do
      def start(launcher)
        names = %i[binds workers min_threads max_threads environment silence_single_worker_warning
                   level unset]
        options = launcher.options
        File.write("options", [*names.map { |name| options[name] }, options.fetch(:unset, 1),
                               launcher.config.options[:max_threads]].inspect)
        launcher.events.register(:state) do |state|
          File.write("states-#{$$}", "#{state} ", mode: "a")
        end
        launcher.log_writer.debug("unseen")
        launcher.log_writer.unknown_error(RuntimeError.new("odd"), nil, "observer")
        in_background do
          launcher.thread_status { |name, _| File.write("threads", "#{name}\n", mode: "a") }
          File.write("port", [launcher.connected_ports, Puma.cli_config.options[:workers]].inspect)
        end
      end
    end
  RUBY

  def test_a_plugin_finds_the_true_values
    write("lib/puma/plugin/observer.rb", OBSERVER)
    [0, 2].each do |workers|
      pid = start_with(<<~RUBY, "-e", "production", port: %w[-b tcp://127.0.0.1:0])
        plugin :observer
        compress 7
        observe "forked"
        workers #{workers}
      RUBY
      eventually { File.exist?("#{@folder}/port") && !File.empty?("#{@folder}/port") }
      assert_equal [["tcp://127.0.0.1:0"], workers, 2, 2, "production", true, 7, nil, 1, 2].inspect,
                   File.read("#{@folder}/options")
      assert_equal "[[#{@address[/\d+\z/]}], #{workers}]", File.read("#{@folder}/port")
      assert_predicate stop(pid), :success?
      assert_states(pid, workers)
      assert_equal workers.positive?, File.exist?("#{@folder}/forked")
      assert_includes File.read(@log), "thruway: observer: #<RuntimeError: odd>"
      refute_includes File.read(@log), "unseen"
      FileUtils.rm_f(Dir["#{@folder}/{port,states-*}"])
    end
  end

  # The states are reported in the serving processes: in this one, or in each worker.
  def assert_states(pid, workers)
    states = Dir["#{@folder}/states-*"].to_h { |path| [path[/\d+\z/].to_i, File.read(path)] }
    assert_equal ["booting running stop done "], states.values.uniq
    assert_equal workers.zero? ? 1 : workers, states.size
    assert_equal workers.zero?, states.key?(pid)
  end

  # Plugins that are refused at the start, each with the reason.
  REFUSED = {
    "launcher.binder" => "undefined method `binder' for Puma's launcher in Thruway: " \
                         "Thruway opens its listeners itself",
    "launcher.config.app" => "undefined method `app' for launcher.config in Thruway",
    "launcher.options[:out_of_band]" => "there is no option :out_of_band in Thruway",
    "launcher.options[:binds] = []" => "a plugin cannot set options[:binds] when it starts",
    "launcher.events.register(:ping!) { 1 }" => "there is no event :ping! in Thruway",
    "Puma::Server.new(nil)" => "uninitialized constant Puma::Server: it is a part of Puma " \
                               'itself; with gem "puma" in the Gemfile, plugins find it',
    "Puma::Binder" => "uninitialized constant Puma::Binder: Thruway opens its listeners itself"
  }.freeze

  def test_what_a_plugin_cannot_have_is_named
    write("config.ru", HELLO)
    write("Gemfile", "")
    write("config/puma.rb", "$LOAD_PATH << File.expand_path('lib')\nplugin :wish")
    wishes = REFUSED.keys.map { |wish| "-> { #{wish} }" }.join(", ")
    write("lib/puma/plugin/wish.rb", <<~RUBY)
      Puma::Plugin.create do
        def start(launcher)
          answers = [#{wishes}].map { |wish| wish.call rescue $!.message.lines.first.chomp }
          File.write("answers", answers.join("\n"))
          launcher.binder
        end
      end
    RUBY
    assert_includes refusal(@folder, "-p", "0"),
                    "thruway: plugin :wish cannot start: undefined method `binder'"
    answers = File.readlines("#{@folder}/answers")
    REFUSED.values.zip(answers) { |expected, answer| assert_includes answer, expected }
    write("lib/puma/plugin/wish.rb", "Puma::Plugin.create { def start(launcher) = " \
                                     "launcher.log_writer.error('it cannot be') }")
    _, said, status = Open3.capture3(BINARY, "serve", @folder, "-p", "0")
    assert_equal ["thruway: ERROR: it cannot be\n", 1], [said, status.exitstatus]
  end

  def test_a_plugin_that_cannot_be_loaded_is_named
    write("config.ru", HELLO)
    write("config/puma.rb", "plugin :none")
    assert_includes refusal(@folder, "-p", "0"),
                    "plugin :none: the plugin cannot be loaded: cannot load such file"
    write("config/puma.rb", "plugin :tmp_restart\n@options[:queue_mode] = 1")
    assert_includes refusal(@folder, "-p", "0"), "unknown option @options["
  end

  # If Puma is in the bundle, or installed where there is no bundle, its own library is used.
  def test_puma_itself_is_not_replaced
    skip "there is no gem puma" if Gem::Specification.find_all_by_name("puma").empty?
    write("lib/puma/plugin/mixed.rb", <<~'RUBY')
      require "puma"
      class Puma::DSL
        def mixed(value) = @options[:mixed] = value
      end
      Puma::Plugin.create do
        def start(launcher)
          launcher.events.on_booted do
            server = Puma::Server.new(->(_) { [200, {}, ["own"]] }, launcher.events)
            own = $LOADED_FEATURES.grep(%r{/puma/server\.rb\z}).any?
            File.write("mixed", [own, Puma.stats_hash[:max_threads], server.class,
                                 launcher.options[:mixed],
                                 Puma::Const::VERSION == Gem.loaded_specs["puma"].version.to_s].inspect)
          end
        end
      end
    RUBY
    write("config.ru", "require 'puma'\n#{HELLO}")
    write("config/puma.rb", "$LOAD_PATH.unshift File.expand_path('lib')\n" \
                            "plugin :mixed\nmixed 5\nthreads 2, 2")
    start
    eventually { File.exist?("#{@folder}/mixed") && !File.empty?("#{@folder}/mixed") }
    assert_equal "[true, 2, Puma::Server, 5, true]", File.read("#{@folder}/mixed")
    assert_equal 200, get.status
  end
end
