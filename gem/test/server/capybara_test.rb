# frozen_string_literal: true

require_relative "../commands"
require_relative "../ports"

# `Capybara.server = :thruway`, in its own process, which represents a run of system tests.
class CapybaraTest < Minitest::Test
  include Commands

  LIBRARY = File.expand_path("../../lib", __dir__)
  EXTENSION = File.dirname(BINARY) + "/gem"
  # The part of Capybara that the server uses, for machines without Capybara.
  STAND_IN = <<~RUBY
    module Capybara
      SERVERS = {}
      def self.register_server(name, &block) = SERVERS[name] = block
      def self.servers = SERVERS
    end
  RUBY
  IS_INSTALLED = Gem::Specification.find_all_by_name("capybara").any?

  BEGINNING = <<~'RUBY'
    $stdout.sync = true
    require "net/http"
    require "socket"
    require "thruway/capybara"
    Signal.trap("TERM") { puts "trapped"; exit! 7 }
    app = lambda do |env|
      raise "boom" if env["PATH_INFO"] == "/boom"
      [200, {}, [env["SERVER_PORT"], " ", env["rack.url_scheme"]]]
    end
    port = Integer(ENV.fetch("TEST_PORT"))
    serve = lambda do |**options|
      Thread.new { Capybara.servers[:thruway].call(app, port, "127.0.0.1", **options) }
    end
    get = lambda do |path|
      Net::HTTP.get_response(URI("http://127.0.0.1:#{port}#{path}"))
    rescue Errno::ECONNREFUSED
      sleep 0.01
      retry
    end
  RUBY

  def run_tests(script)
    write("stand-ins/capybara.rb", STAND_IN) unless IS_INSTALLED
    write("config/puma.rb", "raise 'read'")
    variables = { "WEB_CONCURRENCY" => "3", "TEST_PORT" => Ports.free_port.to_s }
    Open3.capture3(variables, "timeout", PATIENCE_SECONDS.to_s, "ruby", "-w",
                   "-I#{@folder}/stand-ins", "-I#{LIBRARY}", "-I#{EXTENSION}", "-e",
                   BEGINNING + script, chdir: @folder)
  end

  def test_it_serves_beside_the_tests_and_ends_with_them
    out, said, status = run_tests(<<~'RUBY')
      thread = serve.call(Silent: true)
      response = get.call("/")
      puts response.body == "#{port} http", get.call("/boom").code, $0
      thread.kill.join
      puts((TCPSocket.new("127.0.0.1", port) rescue $!.class))
      serve.call(Silent: true, Threads: "2", Host: "localhost")
      puts get.call("/").code
      Process.kill("TERM", Process.pid)
      sleep
    RUBY
    assert_equal %w[true 500 -e Errno::ECONNREFUSED 200 trapped], out.split, said
    assert_equal [7, ""], [status.exitstatus, said]
  end

  def test_it_says_what_it_does
    out, said, status = run_tests(<<~'RUBY')
      texts = Queue.new
      $stdout.define_singleton_method(:write) { |*all| super(*all).tap { texts << all.join } }
      serve.call(Verbose: true)
      get.call("/seen")
      get.call("/boom")
      # A line is written after its response.
      nil until texts.pop.include?("GET /seen")
    RUBY
    assert_match(/\ACapybara starting Thruway...\n\* Version .*\n\* Listening on http:/, out)
    assert_includes out, "GET /seen"
    assert_includes said, "boom (RuntimeError)"
    assert_predicate status, :success?
  end

  def test_options_that_a_test_server_cannot_have_are_errors
    { "workers: 2" => "a server of tests runs in their process", "daemon: true" => "daemon false",
      "Port80: 1" => "unknown option for Capybara.server: Port80:",
      "Threads: 'many'" => "many" }.each do |option, message|
      out, = run_tests("serve.call(#{option}).join rescue puts $!.message")
      assert_includes out, message
    end
  end
end
