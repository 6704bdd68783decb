# frozen_string_literal: true

require_relative "../commands"

# The handler for `rackup -s thruway` and `rails server -u thruway`, with their options.
class HandlerTest < Minitest::Test
  include Commands

  LIBRARY = File.expand_path("../../lib", __dir__)
  EXTENSION = File.dirname(BINARY) + "/gem"
  APP = "->(_) { [200, {}, [Process.pid.to_s]] }"
  # Rack 3 has moved its handlers to another gem.
  IS_RACK_3 = Gem::Specification.find_all_by_name("rackup", "~> 2.0").any?
  HANDLERS = IS_RACK_3 ? "Rackup::Handler" : "Rack::Handler"
  FEATURE = "#{HANDLERS.downcase.sub("::", "/")}/thruway".freeze

  # Serves by Rack's handler with these options, and waits until the server is ready.
  def serve_by_handler(options)
    out, said = IO.pipe
    script = "#{HANDLERS}.get('thruway').run(#{APP}, **#{options})"
    @pids << spawn("ruby", "-I#{LIBRARY}", "-I#{EXTENSION}", "-r#{FEATURE}", "-e", script,
                   out: said, err: "#{@folder}/log", chdir: @folder)
    said.close
    line = Timeout.timeout(PATIENCE_SECONDS) { out.gets } or flunk(File.read("#{@folder}/log"))
    @address = line[%r{on ((http|https|unix)://[^ ,]+)}, 1]
  end

  # The options of Rails, with a port that the user has not set.
  RAILS = { Host: "localhost", Port: 1, environment: "development" }.freeze

  def rails(user = {})
    RAILS.merge(user, user_supplied_options: user.keys)
  end

  def test_the_usual_files_are_read
    { "config/puma.rb" => "puma", "config/puma/production.rb" => "own",
      "config/thruway.rb" => "ours" }.each do |name, tag|
        write(name, "tag '#{tag}'\nport 0\nworkers 1\nmax_keep_alive 3")
        serve_by_handler(rails(environment: "production"))
        master = @pids.last
        title = File.read("/proc/#{master}/cmdline")
        assert_includes title, "[#{tag}]"
        refute_equal master, get.body.to_i
        assert_includes File.read("#{@folder}/log"), "max_keep_alive is ignored"
        stop(master)
      end
  end

  def test_options_of_the_user_come_before_the_file_and_defaults_after_it
    write("config/puma.rb", "bind 'unix://file.sock'\nthreads 2")
    serve_by_handler(rails)
    assert_equal "unix://file.sock", @address
    stop(@pids.last)
    serve_by_handler(rails(Port: 0, Host: "127.0.0.1"))
    assert_match(%r{\Ahttp://127\.0\.0\.1:\d+\z}, @address)
    stop(@pids.last)
    # rackup says nothing about the user.
    serve_by_handler({ Port: "0", Host: "127.0.0.1", environment: "production" })
    assert_match(%r{\Ahttp://127\.0\.0\.1:\d+\z}, @address)
  end

  def test_no_file_is_read_where_none_is_wanted
    write("config/puma.rb", "raise 'read'")
    serve_by_handler({ Port: 0, Host: "127.0.0.1", config_files: ["-"] })
    assert_equal 200, get.status
  end

  def test_a_host_may_be_a_path_or_a_name_without_a_file
    serve_by_handler({ Host: "./own.sock", Port: 9292 })
    assert_equal "unix://./own.sock", @address
    stop(@pids.last)
    serve_by_handler({ Host: "@thruway-#{Process.pid}", Port: 9292 })
    assert_equal "unix://@thruway-#{Process.pid}", @address
  end

  def test_a_host_may_ask_for_tls
    configure = "p Thruway::Handler.configure(nil, {Host: ARGV[0], Port: 80}).addresses"
    { "ssl://a?cert=b" => "ssl://a:80?cert=b", "ssl://a:1?cert=b" => "ssl://a:1?cert=b",
      "ssl://[::1]?cert=b" => "ssl://[::1]:80?cert=b" }.each do |host, expected|
        out, = Open3.capture2("ruby", "-I#{LIBRARY}", "-I#{EXTENSION}", "-rthruway/handler",
                              "-e", configure, host, chdir: @folder)
        assert_equal "[#{expected.inspect}]\n", out
      end
  end

  def test_rails_shows_its_name
    out, = Open3.capture2("ruby", "-I#{LIBRARY}", "-I#{EXTENSION}", "-r#{FEATURE}",
                          "-e", "puts #{HANDLERS}.get('thruway')")
    assert_equal "#{HANDLERS}::Thruway\n", out
  end
end
