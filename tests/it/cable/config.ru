# frozen_string_literal: true

# ActionCable with a page that speaks Rails' own JavaScript, without the rest of Rails.
require "concurrent"
require "action_cable"
require "logger"
require "thruway/cable"

module Cable
  class Connection < ActionCable::Connection::Base; end

  # It says which worker has the client, and passes on what a client says.
  class Room < ActionCable::Channel::Base
    def subscribed
      stream_from "room"
      transmit({ worker: Process.pid })
    end

    def speak(data)
      ActionCable.server.broadcast("room", { said: data["text"] })
    end
  end
end

redis = ENV.fetch("CABLE_REDIS", nil)
config = ActionCable.server.config
config.cable = redis ? { "adapter" => "redis", "url" => redis } : { "adapter" => "async" }
config.connection_class = -> { Cable::Connection }
config.logger = Logger.new(nil)
config.allow_same_origin_as_host = true

scripts = File.join(Gem.loaded_specs["actioncable"].full_gem_path, "app/assets/javascripts")
# Rails 7 has another name for it.
script = Dir[File.join(scripts, "{actioncable,action_cable}.js")].min
page = File.join(__dir__, "page.html")

run(lambda do |env|
  case env["PATH_INFO"]
  when "/cable" then ActionCable.server.call(env)
  when "/script" then [200, { "content-type" => "text/javascript" }, [File.binread(script)]]
  else [200, { "content-type" => "text/html" }, [File.binread(page)]]
  end
end)
