# frozen_string_literal: true

require "io/console"
require "preloading"
require "pty"
require "shellwords"

# A fork is a job of the shell that started it, with the terminal's signals, size and name.
class PreloadTerminalTest < Minitest::Test
  include Preloading

  # A shell on its own terminal.
  class Shell
    # Signals that the tests' own process ignores would be ignored by all of its children. Some
    # machines run tests below `nohup`, or behind `&`.
    DEFAULTS = "%w[HUP INT QUIT TSTP TTIN TTOU PIPE CHLD].each { |one| trap(one, 'DEFAULT') }; " \
               "exec(*ARGV)"

    def initialize(made)
      quiet = { "PS1" => "$ ", "TERM" => "dumb", "HISTFILE" => nil,
                "BASH_SILENCE_DEPRECATION_WARNING" => "1" }
      bash = %w[bash --norc --noprofile -i]
      command = [made.environment.merge(quiet), "ruby", "--disable-gems", "-e", DEFAULTS, *bash]
      @reader, @writer, @process = PTY.spawn(*command, chdir: made.folder)
      @said = +""
      expect("$ ")
    end

    def type(text) = @writer.write(text)
    def line(text) = type("#{text}\n")

    # Waits for a text, and returns the output up to that text.
    def expect(text)
      Preloading.await(-> { "#{text.inspect} in #{@said.inspect}" }) do
        more = @reader.read_nonblock(4096, exception: false)
        @said << more if more.is_a?(String)
        found = @said.index(text) and return @said.slice!(0, found + text.size)
      end
    rescue EOFError, Errno::EIO
      raise "no #{text.inspect} in #{@said.inspect}"
    end

    # The output of a command line.
    def said(line)
      line("#{line}; echo \"do\"ne $?")
      expect("done ").tap { expect("$ ") }
    end

    def resize(rows, columns) = @writer.winsize = [rows, columns]

    # Closes the terminal, as its window does.
    def close
      @writer.close
      @reader.close
      Preloading.status_of(@process, "a shell")
    end
  end

  def preloaded(code) = "#{THRUWAY.shellescape} run --preload -- bin/rails runner '#{code}'"

  # Starts a shell in which commands are forks.
  def shell(made)
    shell = Shell.new(made)
    before = made.templates.size
    shell.said(preloaded("0"))
    made.await_template(before + 1)
    yield shell
  ensure
    shell&.close
  end

  # Returns a process's state, group and session, and the group in its terminal's foreground.
  def state(process)
    state, _, group, session, _, foreground = File.read("/proc/#{process}/stat")[/\) (.*)/, 1].split
    [state, *[group, session, foreground].map { |text| Integer(text) }]
  end

  # Waits until a job reads from the terminal.
  def await_foreground(process)
    Preloading.await("a job in the foreground") do
      state, group, _, foreground = state(process)
      state == "S" && group == foreground && state(group)[0] == "S"
    end
  end

  def forks(made) = made.templates.sum { |template| template["forks"] }

  # Another end of the terminal would be waited for.
  def test_a_template_does_not_keep_a_terminal_open
    application do |made|
      shell(made) do |_|
        process = made.templates.first["process"]
        opened = Dir.children("/proc/#{process}/fd").map do |number|
          File.readlink("/proc/#{process}/fd/#{number}")
        end
        assert_empty opened.grep(%r{/dev/(pts|tty)})
      end
    end
  end

  def test_the_terminals_keys
    application do |made|
      shell(made) do |shell|
        code = "at_exit { puts %q(interrupted) }; trap(:INT) { exit 5 }"
        shell.line(preloaded("#{code}; puts %q(ready); sleep"))
        shell.expect("ready\r\n")
        shell.type("\x03")
        shell.expect("interrupted")
        shell.expect("$ ")
        assert_includes shell.said("echo status $?"), "status 5"
        shell.line(preloaded("puts %q(ready); sleep"))
        shell.expect("ready\r\n")
        shell.type("\x1c")
        shell.expect("Quit")
        assert_equal 2, forks(made)
      end
    end
  end

  def test_a_job_is_stopped_and_goes_on
    application do |made|
      shell(made) do |shell|
        shell.line(preloaded("puts Process.pid, %q(ready); puts gets.upcase; exit 6"))
        fork = shell.expect("ready\r\n")[/^(\d+)\r$/, 1]
        2.times do
          # A key that is typed before the shell has handed the terminal over is lost.
          await_foreground(fork)
          shell.type("\x1a")
          shell.expect("Stopped")
          shell.expect("$ ")
          assert_includes shell.said("jobs"), "Stopped"
          shell.line("fg")
          shell.expect("runner")
          shell.expect("\r\n")
        end
        shell.line("given")
        shell.expect("GIVEN")
        shell.expect("$ ")
        assert_includes shell.said("echo status $?"), "status 6"
      end
    end
  end

  # The report of a stop reaches a client that is itself stopped, and continues together with its
  # command.
  def test_a_job_that_goes_on_is_not_stopped_by_old_news
    application do |made|
      shell(made) do |shell|
        shell.line(preloaded("puts Process.pid, %q(ready); puts gets.upcase; exit 6"))
        fork = shell.expect("ready\r\n")[/^(\d+)\r$/, 1]
        await_foreground(fork)
        client = state(fork)[1]
        Process.kill(:STOP, client)
        shell.expect("Stopped")
        shell.expect("$ ")
        Process.kill(:STOP, Integer(fork))
        template = made.templates.first["process"]
        Preloading.await("the template's rest") do
          state(fork)[0] == "T" && state(template)[0] == "S"
        end
        shell.line("fg")
        await_foreground(fork)
        shell.line("given")
        shell.expect("GIVEN")
        assert_includes shell.said("echo status $?"), "status 6"
      end
    end
  end

  def test_the_terminal_itself
    application do |made|
      shell(made) do |shell|
        shell.resize(33, 77)
        code = "require %q(io/console); p IO.console.winsize, File.open(%q(/dev/tty)).tty?, " \
               "Process.getsid == Process.ppid, $stdin.tty?, Process.getpgrp != Process.pid"
        said = shell.said(preloaded(code))
        assert_includes said, "[33, 77]\r\ntrue\r\n"
        code = "at_exit { puts %q(resized) }; trap(:WINCH) { exit }"
        shell.line(preloaded("#{code}; puts %q(ready); sleep"))
        shell.expect("ready\r\n")
        shell.resize(20, 40)
        shell.expect("resized")
        assert_equal 2, forks(made)
      end
    end
  end

  def test_each_terminal_has_its_own_template_which_ends_with_it
    application do |made|
      first = nil
      shell(made) do |one|
        first = made.templates.first["process"]
        shell(made) do |other|
          other.said(preloaded("puts 1"))
          assert_equal 2, made.templates.size
        end
        one.said(preloaded("puts 1"))
      end
      assert_ends(first)
      assert_empty made.templates
    end
  end

  def test_a_pipeline_is_one_job
    application do |made|
      shell(made) do |shell|
        said = shell.said("#{preloaded("puts [3, 1, 2]")} | sort | tr '\\n' ' '")
        assert_includes said, "1 2 3"
        shell.line("#{preloaded("puts %q(ready); $stdout.flush; sleep")} | cat")
        shell.expect("ready\r\n")
        shell.type("\x03")
        shell.expect("$ ")
        assert_includes shell.said("echo still here"), "still here"
      end
    end
  end

  # `setsid` creates another session, in which this terminal's template does not count.
  def test_a_command_in_a_session_of_its_own
    application do |made|
      shell(made) do |shell|
        alone = "setsid --wait #{preloaded("puts %q(alone); exit 4")}"
        said = shell.said("#{alone}; echo status $?")
        assert_match(/alone\r\nstatus 4\r\n/, said)
        assert_equal 0, forks(made)
      end
    end
  end

  # The terminal is closed, and a command that ignores the hangup continues.
  def test_nohup
    application do |made|
      shell = Shell.new(made)
      code = "File.write(%q(tmp/begun), %q(1)); sleep 0.02 until File.exist?(%q(tmp/go)); " \
             "File.write(%q(tmp/process), %q(over))"
      before = preloaded("0").sub("run ", "run --explain ")
      shell.said("nohup #{before} >/dev/null 2>&1")
      made.await_template
      shell.line("nohup #{preloaded(code)} >/dev/null 2>&1 &")
      made.await_file("tmp/begun")
      assert_equal 1, forks(made)
      shell.close
      made.write("tmp/go", "")
      assert_equal "over", made.await_file("tmp/process")
    end
  end

  # Commands of two terminals at the same time: each terminal has its own template.
  def test_two_shells_at_once
    application do |made|
      shell(made) do |one|
        shell(made) do |two|
          [one, two].each { |shell| shell.line(preloaded("puts %q(ready); puts gets; sleep")) }
          [one, two].each { |shell| shell.expect("ready\r\n") }
          two.line("second")
          two.expect("second\r\nsecond\r\n")
          two.type("\x03")
          two.expect("$ ")
          one.line("first")
          one.expect("first\r\nfirst\r\n")
          one.type("\x03")
          one.expect("$ ")
          assert_equal([1, 1], made.templates.map { |template| template["forks"] })
        end
      end
    end
  end
end
