# frozen_string_literal: true

require_relative "../commands"

# Plugins of Puma, each as its gem has it in `puma/plugin/NAME.rb`.
class PluginTest < Minitest::Test
  include Commands

  # In the form of solid_queue's: a child that does the work, and each side watches the other.
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

  def start_with(words, *arguments)
    write("config.ru", HELLO)
    write("lib/puma/plugin/queue.rb", QUEUE)
    write("lib/puma/plugin/other.rb", OTHER)
    write("config/puma.rb", "$LOAD_PATH.unshift File.expand_path('lib')\n#{words}")
    start(*arguments)
  end

  # The queue's process that has started.
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

  def test_what_a_plugin_cannot_have_is_named
    write("config.ru", HELLO)
    write("lib/puma/plugin/binder.rb",
          "Puma::Plugin.create { def start(launcher) = launcher.binder }")
    write("config/puma.rb", "$LOAD_PATH << File.expand_path('lib')\nplugin :binder")
    assert_match(/\Athruway: plugin :binder cannot start: undefined method .binder'/,
                 refusal(@folder, "-p", "0"))
    write("config/puma.rb", "plugin :none")
    assert_includes refusal(@folder, "-p", "0"),
                    "plugin :none: the plugin cannot be loaded: cannot load such file"
    write("config/puma.rb", "plugin :tmp_restart\n@options[:queue_mode] = 1")
    assert_includes refusal(@folder, "-p", "0"), "unknown option @options["
  end
end
