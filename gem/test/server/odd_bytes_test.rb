# frozen_string_literal: true

require_relative "../restarting"

# Bytes that are no text in the locale: in the environment, in arguments, and in the working folder.
class OddBytesTest < Minitest::Test
  include Restarting

  KINDS = [[], %w[-w 1]].freeze
  LOCALES = [{ "LC_ALL" => "C" }, { "LC_ALL" => "C.UTF-8" },
             { "LC_ALL" => nil, "LANG" => nil, "LC_CTYPE" => nil }].freeze
  NAMES = ["José", "caf\xE9".b, "a b\nc"].freeze

  def start_in(folder, locale, *arguments, variables: {})
    @log = File.join(@folder, "log")
    out, said = IO.pipe
    pid = spawn(locale.merge(variables), BINARY, "serve", *arguments,
                "-p", "0", "-t", "2", out: said, err: @log, chdir: folder)
    said.close
    @pids << pid
    line = Timeout.timeout(PATIENCE_SECONDS) { out.binmode.gets(" (ready in ") }
    line or flunk(log)
    @address = line[%r{on (http://[^ ,]+)}n, 1]
    pid
  end

  def log = File.binread(@log)

  # Creates an application's folder with this name, and the files that are named after it.
  def application(name)
    folder = File.join(@folder.b, name.b)
    FileUtils.mkdir_p(folder)
    write_in(folder, "config.ru", VERSIONED)
    write_in(folder, "version", "v1")
    folder
  end

  def write_in(folder, name, text) = File.binwrite(File.join(folder, name.b), text)

  def restarted(folder, pid, arguments)
    write_in(folder, "version", "v2")
    Process.kill("USR2", pid)
    eventually { Array.new(3) { get.body }.all? { |body| body.start_with?("v2") } }
    eventually { log.include?("hot restart: done") } if arguments.any?
  end

  def test_variables_may_have_any_bytes
    folder = application("app")
    KINDS.product(LOCALES).each do |arguments, locale|
      write_in(folder, "version", "v1")
      variables = { "NAME" => "José", "X" => "caf\xE9", "Y\xE9" => "1" }
      pid = start_in(folder, locale, ".", *arguments, variables: variables)
      restarted(folder, pid, arguments)
      environ = File.binread("/proc/#{pid}/environ").split("\0")
      ["NAME=José", "X=caf\xE9", "Y\xE9=1"].each { |one| assert_includes environ, one.b }
      assert_predicate stop(pid), :success?
    end
  end

  def test_the_working_folder_and_the_target_may_have_any_bytes
    KINDS.product(LOCALES.first(2), NAMES).each do |arguments, locale, name|
      folder = application(name)
      [[folder, "."], [@folder, name]].each do |from, target|
        write_in(folder, "version", "v1")
        pid = start_in(from, locale, target, *arguments)
        restarted(folder, pid, arguments)
        title = File.binread("/proc/#{pid}/cmdline").delete("\0")
        assert_includes title, "[#{name.b}]"
        assert_predicate stop(pid), :success?
      end
    end
  end

  def test_files_that_a_configuration_names_may_have_any_bytes
    KINDS.product(LOCALES.first(2), NAMES.first(2)).each do |arguments, locale, name|
      folder = application(name)
      FileUtils.mkdir_p(File.join(folder, "config"))
      write_in(folder, "config/puma.rb", <<~RUBY.b)
        here = Dir.pwd
        pidfile "\#{here}/pid"
        state_path "\#{here}/state"
        activate_control_app "unix://ctl"
        stdout_redirect nil, "\#{here}/err", true
        preload_app! false
        plugin :tmp_restart
        tag here
      RUBY
      pid = start_in(folder, locale, ".", *arguments)
      err = @log = File.join(folder, "err")
      assert_path_exists File.join(folder, "pid")
      File.rename(err, "#{err}.1")
      Process.kill("HUP", pid)
      eventually { File.exist?(err) }
      write_in(folder, "version", "v3")
      Process.kill("USR1", pid)
      eventually { Array.new(3) { get.body }.all? { |body| body.start_with?("v3") } }
      eventually { log.include?("phased restart: done") } if arguments.any?
      write_in(folder, "config/puma.rb", "raise 'caf\\xE9 is no configuration'\n".b)
      if arguments.any?
        logged("the configuration cannot be read") { Process.kill("USR1", pid) }
      else
        logged("the trial failed") { Process.kill("USR2", pid) }
      end
      assert_predicate stop(pid), :success?
      FileUtils.rm_rf(folder)
    end
  end

  def test_errors_and_backtraces_are_told_whatever_their_encodings
    KINDS.product(LOCALES.first(2), NAMES.first(2)).each do |arguments, locale, name|
      folder = application(name)
      write_in(folder, "config.ru", <<~RUBY)
        # encoding: utf-8
        Thread.new { Thread.current.name = "fäden"; sleep }
        run ->(env) {
          raise "ä \#{env["PATH_INFO"]}" if env["PATH_INFO"] != "/"
          [200, {}, ["ok"]]
        }
      RUBY
      pid = start_in(folder, locale, ".", *arguments)
      logged("RuntimeError") { assert_equal 500, get("/caf%E9").status }
      logged("fäden".b) { Process.kill("PWR", pid) }
      assert_equal 200, get.status
      assert_predicate stop(pid), :success?
      FileUtils.rm_rf(folder)
    end
  end

  def test_refusals_name_files_with_any_bytes
    LOCALES.product(NAMES).each do |locale, name|
      folder = application(name)
      write_in(folder, "config.ru", "# é\nraise \"caf\\xE9 é\"")
      [[name], [File.join(name.b, "nothing.ru")],
       [name, "-C", File.join(name.b, "no.rb")]].each do |arguments|
        _, said, status = Open3.capture3(locale, BINARY, "serve", *arguments, "-p", "0",
                                         chdir: @folder, binmode: true)
        assert_equal 2, status.exitstatus, said
        assert_match(/\Athruway: /n, said)
        refute_match(/\.rb:\d+:in .*Error\)/n, said)
      end
      FileUtils.rm_rf(folder)
    end
  end
end
