# frozen_string_literal: true

require_relative "../commands"

# The features that a server loads before the application. Any default gem of Ruby may be in a
# bundle, and Bundler does not set up a bundle if another version of one of its gems is loaded.
class BundleTest < Minitest::Test
  include Commands

  # The features loaded beside Ruby's own files and the gem's. No gem contains them, from Ruby 3.1
  # to 4.0. Do not add to this list: `socket` is missing because it requires `io/wait`, which is a
  # gem.
  LIBRARIES = %w[socket.so].freeze

  RECORD = <<~'RUBY'
    File.write("loaded-#{Process.pid}", [*$LOADED_FEATURES, *Gem.loaded_specs.keys].join("\n"))
    run ->(_) { [200, {}, [Process.pid.to_s]] }
  RUBY

  # The directives that need a library, or a thread in the supervisor.
  WORDS = <<~'RUBY'
    threads 1
    activate_control_app "unix://control.sock", no_token: true
    agent_check "unix://agent.sock"
    metrics "unix://metrics.sock"
    state_path "state"
    status_page
    load_report
    early_hints
    compress :all
    log_requests :json
    immutable_assets
    socket_origins :any
    plugin :tmp_restart
    restart_command "a 'b c'"
    stdout_redirect nil, "errors", true
    worker_timeout 60
  RUBY

  def plain
    @plain ||= IO.popen(["ruby", "-e", "puts $LOADED_FEATURES, Gem.loaded_specs.keys"],
                        &:readlines).map(&:chomp)
  end

  # The features that a process has loaded before the application, beyond those of every Ruby.
  def libraries_of(pid)
    own = %r{/gem/lib/thruway|/thruway/thruway\.so\z|\A/.*/thruway\.so\z}
    loaded = File.readlines(File.join(@folder, "loaded-#{pid}"), chomp: true) - plain
    loaded.grep_v(own).grep_v(%r{/enc/|/rubygems/|/rubygems\.rb\z}).map { |path|
      File.basename(path)
    }
  end

  def ask_control
    Client.new(UNIXSocket.new(File.join(@folder, "control.sock")))
          .send("GET /stats HTTP/1.0\r\n\r\n").response
  end

  def test_nothing_that_may_be_a_gem_is_loaded_before_the_application
    write("config.ru", RECORD)
    # The application has a place for a pack.
    write("tmp/keep", "")
    ["workers 0", "workers 1", "workers 1\npreload_app! false", "workers 1\nfork_worker 0"]
      .each do |words|
        write("config/puma.rb", "#{WORDS}#{words}")
        pid = start(port: %w[-b tcp://127.0.0.1:0 --fair-by address])
        assert_equal 200, ask_control.status
        loaded = Dir["#{@folder}/loaded-*"].map { |path| path[/\d+\z/] }
        loaded.each { |one| assert_equal LIBRARIES, libraries_of(one), words }
        stop(pid)
        FileUtils.rm_f(Dir["#{@folder}/loaded-*"])
      end
  end

  def test_a_worker_that_boots_later_finds_as_little
    write("config.ru", RECORD)
    write("config/puma.rb", "#{WORDS}workers 1\npreload_app! false")
    start(port: %w[-b tcp://127.0.0.1:0])
    first = get.body
    assert_equal 200, ask_control.status
    Process.kill("KILL", first.to_i)
    second = nil
    eventually { (second = later_worker(first)) }
    assert_equal LIBRARIES, libraries_of(second)
  end

  # Returns the worker that replaces `first`, or nil before the replacement.
  def later_worker(first)
    pids = Dir["#{@folder}/loaded-*"].map { |path| path[/\d+\z/] }
    pids.find { |pid| pid != first && !File.empty?(File.join(@folder, "loaded-#{pid}")) }
  end

  def test_an_application_may_have_its_own_versions
    %w[json stringio etc io-wait zlib digest optparse shellwords].each do |name|
      write("gems/specifications/#{name}-99.0.gemspec", <<~RUBY)
        Gem::Specification.new("#{name}", "99.0") { |s| s.authors = ["a"]; s.summary = "a" }
      RUBY
      FileUtils.mkdir_p(File.join(@folder, "gems/gems/#{name}-99.0/lib"))
    end
    write("config.ru", <<~RUBY)
      %w[json stringio etc io-wait zlib digest optparse shellwords].each { |name| gem name, "99.0" }
      run ->(_) { [200, {}, [Gem.loaded_specs["json"].version.to_s]] }
    RUBY
    write("config/puma.rb", "#{WORDS.lines.grep_v(/compress|log_/).join}workers 1")
    start(by: ["env", "GEM_PATH=#{File.join(@folder, "gems")}:#{Gem.path.join(":")}"])
    assert_equal "99.0", get.body
  end
end
