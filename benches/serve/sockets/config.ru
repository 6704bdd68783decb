# frozen_string_literal: true

# Messages that come back: what `cargo x bench serve-sockets` compares servers by.
class Echo
  def on_message(client, data) = client.write(data)
end

echo = Echo.new
run(lambda do |env|
  env["rack.upgrade"] = echo if env["rack.upgrade?"]
  [200, { "content-type" => "text/plain", "content-length" => "2" }, ["ok"]]
end)
