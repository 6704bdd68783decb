# frozen_string_literal: true

require_relative "../serving"

# The tests of the guarantees for requests and for their clients, run in all modes besides threads.
MODES = { "Fibers" => { fibers: 64 },
          "WaitingThreads" => { threads: 2, waiting_threads: 16 } }.freeze

# Files of which all tests run in each mode.
FILES = %w[after body claimed_chunks content_length early_hints error forks hijack http2 kept_block
           lint request_body request_end sendfile slow_client sockets stream_wait tls
           upgrade].freeze

# Files of which some tests do: the others do not concern requests, or take long.
SOME = {
  "refork" => %i[test_workers_go_on_from_a_warm_worker_and_no_client_notices],
  "restart_faults" => %i[
    test_an_old_worker_that_is_killed_in_its_last_request_is_missed_by_its_client_alone
  ],
  "signals" => %i[test_the_connections_that_wait_when_the_server_stops_are_answered],
  "threads" => %i[test_requests_of_all_kinds_come_through_under_load
                  test_requests_in_one_packet_do_not_wait_for_an_event_that_never_comes
                  test_stopping_waits_for_what_was_asked]
}.freeze

# A response of HTTP/2 does not wait for a waiting fiber, whereas it does for a waiting thread.
OF_THREADS = %i[test_a_response_does_not_wait_while_the_next_request_takes_long].freeze

# The test classes of a file, which a process of its own runs in threads.
def suites_of(name)
  before = Minitest::Runnable.runnables.dup
  require_relative "#{name}_test"
  suites = Minitest::Runnable.runnables - before
  suites.each { |suite| Minitest::Runnable.runnables.delete(suite) }
  suites.select { |suite| suite.include?(Serving) }
end

(FILES + SOME.keys).each do |name|
  suites_of(name).each do |suite|
    MODES.each do |mode, options|
      in_mode = Class.new(suite) { define_method(:mode) { options } }
      tests = in_mode.public_instance_methods.grep(/\Atest_/)
      left_out = SOME.key?(name) ? tests - SOME.fetch(name) : tests & OF_THREADS
      left_out.each { |test| in_mode.undef_method(test) }
      Object.const_set("#{suite}In#{mode}", in_mode)
    end
  end
end

# Each name above is that of a test.
class ModesTest < Minitest::Test
  def test_all_chosen_tests_are_there
    SOME.each do |name, tests|
      suites = Minitest::Runnable.runnables.select { |suite| suite.include?(Serving) }
      tests.each do |test|
        count = suites.count { |suite| suite.method_defined?(test) }
        assert_equal MODES.size, count, "#{name}: #{test}"
      end
    end
  end
end
