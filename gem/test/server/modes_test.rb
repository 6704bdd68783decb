# frozen_string_literal: true

require_relative "../serving"

# The tests of the guarantees for requests, run in all modes besides threads.
IN_FIBERS = %w[after body early_hints error forks hijack http2 kept_block request_body request_end
               sockets stream_wait upgrade].freeze
IN_WAITING_THREADS = %w[body hijack request_end stream_wait].freeze

# A response of HTTP/2 does not wait for a waiting fiber, whereas it does for a waiting thread.
OF_THREADS = %i[test_a_response_does_not_wait_while_the_next_request_takes_long].freeze

MODES = { "Fibers" => [IN_FIBERS, { fibers: 64 }],
          "WaitingThreads" => [IN_WAITING_THREADS, { threads: 2, waiting_threads: 16 }] }.freeze

# The test classes of a file.
classes = IN_FIBERS.to_h do |name|
  before = Minitest::Runnable.runnables.dup
  require_relative "#{name}_test"
  [name, (Minitest::Runnable.runnables - before).select { |suite| suite.include?(Serving) }]
end

MODES.each do |mode, (names, options)|
  classes.values_at(*names).flatten.each do |suite|
    in_mode = Class.new(suite) do
      define_method(:mode) { options }
      (OF_THREADS & suite.public_instance_methods).each { |test| undef_method test }
    end
    Object.const_set("#{suite}In#{mode}", in_mode)
  end
end
# Their own files run them in threads.
classes.each_value { |suites| suites.each { |suite| Minitest::Runnable.runnables.delete(suite) } }
