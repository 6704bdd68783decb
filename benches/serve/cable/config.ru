# frozen_string_literal: true

# A channel that broadcasts what it is told: what `cargo x bench serve-cable` compares servers by.
require "logger"
require "action_cable"
require "thruway/cable" if defined?(Thruway::Server)

module Chat
  class Connection < ActionCable::Connection::Base; end

  class Room < ActionCable::Channel::Base
    def subscribed = stream_from("room")

    def speak(data) = ActionCable.server.broadcast("room", { text: data["text"] })
  end
end

config = ActionCable.server.config
config.cable = { "adapter" => "async" }
config.connection_class = -> { Chat::Connection }
config.logger = Logger.new(nil)
config.disable_request_forgery_protection = true

run(lambda do |env|
  next ActionCable.server.call(env) if env["PATH_INFO"] == "/cable"

  [200, { "content-type" => "text/plain", "content-length" => "2" }, ["ok"]]
end)
