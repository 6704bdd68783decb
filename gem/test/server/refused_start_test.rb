# frozen_string_literal: true

require_relative "../commands"

# Servers that cannot start, or cannot clean up: one line names the cause, without a backtrace.
class RefusedStartTest < Minitest::Test
  include Commands

  # The start of a command with little address space.
  LITTLE_MEMORY = ["sh", "-c", 'ulimit -v 3000000; exec "$@"', "-"].freeze

  # Returns stderr of a server that must not start.
  def refused(*arguments, variables: {}, by: [])
    limit = ["timeout", PATIENCE_SECONDS.to_s]
    _, said, status = Open3.capture3(variables, *by, *limit, BINARY, "serve", @folder, "-p", "0",
                                     *arguments)
    assert_equal 2, status.exitstatus, said
    refute_match(/^\s+from /, said)
    said
  end

  def test_what_the_engine_refuses_is_one_line
    write("config.ru", HELLO)
    [[], %w[-w 1]].each do |arguments|
      said = refused("--cache", "8G", *arguments, by: LITTLE_MEMORY)
      assert_match(/cannot make memory for the cache: .*memory/, said)
      write("config/puma.rb", "trusted_proxies 'x'")
      assert_includes refused(*arguments), '"x" is neither an address nor a network'
      File.delete(File.join(@folder, "config/puma.rb"))
    end
  end

  def test_words_that_cannot_have_an_effect_are_refused
    write("config.ru", HELLO)
    {
      "directory '/none'" => "cannot change to the folder of the word directory",
      "health_check 'up'" => "no request has the path up of health_check",
      "worker_check_interval 0" => "worker_check_interval must be more than 0 seconds",
      "sendfile ''" => "cannot declare a folder or a prefix without a name",
      "head_limit 0" => "cannot take heads of 0 bytes: it must be 16 to 4294967295",
      "request_line_limit 15" => "cannot take request lines of 15 bytes"
    }.each do |text, message|
      write("config/puma.rb", text)
      assert_includes refused, message
    end
  end

  def test_options_that_cannot_have_an_effect_are_refused
    write("config.ru", HELLO)
    {
      %w[--sendfile =] => "cannot declare a folder or a prefix without a name",
      ["--sendfile", "caf\xE9="] => "cannot declare a folder or a prefix without a name",
      ["--sendfile", "=#{@folder}"] => "cannot declare a folder or a prefix without a name",
      %w[-t a:b] => '"a:b" is not a number of threads',
      ["-t", "\xFF"] => "an option's value is not text in UTF-8: \\377",
      %w[-w -1] => "invalid value '-1' for '--workers <N>'",
      %w[--head-limit 0] => "invalid value '0' for '--head-limit <SIZE>'"
    }.each { |arguments, message| assert_includes refused(*arguments), message }
  end

  def test_variables_with_odd_bytes_are_values_like_others
    write("config.ru", 'run ->(_) { [200, {}, [ENV["RACK_ENV"].b]] }')
    %w[WEB_CONCURRENCY MAX_THREADS PUMA_PERSISTENT_TIMEOUT].each do |name|
      said = refused(variables: { name => "caf\xE9" })
      assert_includes said, "#{name} is not a number"
    end
    pid = start(by: ["env", "RACK_ENV=caf\xE9"])
    assert_equal "caf\xE9".b, get.body.b
    assert_predicate stop(pid), :success?
  end

  def test_the_files_of_a_later_server_stay
    write("config.ru", HELLO)
    write("config/puma.rb", "pidfile 'pid'\nstate_path 'state'")
    paths = %w[pid state].map { |name| File.join(@folder, name) }
    first, second = Array.new(2) { start }
    assert_predicate stop(first), :success?
    assert_equal "#{second}\n", File.read(paths.first)
    assert_includes File.read(paths.last), "pid: #{second}\n"
    assert_predicate stop(second), :success?
    paths.each { |path| refute_path_exists path }
  end

  def test_a_file_that_cannot_be_removed_is_no_failure
    write("config.ru", HELLO)
    write("config/puma.rb", "pidfile 'pid'\nstate_path 'state'")
    [[], %w[-w 1]].each do |arguments|
      pid = start(*arguments)
      path = File.join(@folder, "pid")
      File.delete(path)
      Dir.mkdir(path)
      assert_predicate stop(pid), :success?
      assert_includes File.read(@log), "cannot remove a file of this server"
      refute_path_exists File.join(@folder, "state")
      Dir.rmdir(path)
    end
  end
end
