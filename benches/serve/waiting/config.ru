# frozen_string_literal: true

# Requests that wait, as pages that call a language model or another service do: what
# `cargo x bench serve-waiting` and its like compare servers by.
require_relative "../shapes"

EVENTS = 20
EVENT_SECONDS = 0.25
WAIT_SECONDS = 2
NAP_SECONDS = 0.05
TICK_SECONDS = 1
SHAPES = Shapes.new

STREAM = lambda do |stream|
  EVENTS.times do |number|
    stream.write("data: #{number}\n\n")
    stream.flush if stream.respond_to?(:flush)
    sleep EVENT_SECONDS
  end
ensure
  stream.close
end

# An event a second, which names its due time on the monotonic clock in microseconds.
TICKS = lambda do |stream|
  due = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  loop do
    stream.write("data: #{(due * 1e6).to_i}\n\n")
    stream.flush if stream.respond_to?(:flush)
    due += TICK_SECONDS
    sleep [due - Process.clock_gettime(Process::CLOCK_MONOTONIC), 0].max
  end
rescue SystemCallError, IOError
  nil # The client has gone.
ensure
  stream.close
end

run(lambda do |env|
  path = env["PATH_INFO"]
  # Puma's own hint. Other servers have none, or need none.
  env["puma.mark_as_io_bound"]&.call unless path == "/"
  case path
  when "/stream"
    next [200, { "content-type" => "text/event-stream" }, STREAM]
  when "/ticks"
    next [200, { "content-type" => "text/event-stream" }, TICKS]
  when "/page", "/compute" then next SHAPES.call(env)
  when "/wait" then sleep WAIT_SECONDS
  when "/nap" then sleep NAP_SECONDS
  end
  [200, { "content-type" => "text/plain", "content-length" => "2" }, ["ok"]]
end)
