# frozen_string_literal: true

# Requests that wait, as pages that call a language model or another service do: what
# `cargo x bench serve-waiting` compares servers by.
EVENTS = 20
EVENT_SECONDS = 0.25
WAIT_SECONDS = 2
NAP_SECONDS = 0.05

STREAM = lambda do |stream|
  EVENTS.times do |number|
    stream.write("data: #{number}\n\n")
    stream.flush if stream.respond_to?(:flush)
    sleep EVENT_SECONDS
  end
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
  when "/wait" then sleep WAIT_SECONDS
  when "/nap" then sleep NAP_SECONDS
  end
  [200, { "content-type" => "text/plain", "content-length" => "2" }, ["ok"]]
end)
