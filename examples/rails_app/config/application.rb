# frozen_string_literal: true

require_relative "boot"

require "rails"
require "active_record/railtie"
require "action_controller/railtie"
require "action_view/railtie"

require_relative "../lib/first_boot"

module RestStops
  # Rest stops along a road, and what travellers noted there.
  class Application < Rails::Application
    config.load_defaults 6.1

    # Made at the first boot, so that there is nothing to set up.
    config.secret_key_base = FirstBoot.secret(Rails.root.join("tmp/secret_key_base"))
    config.after_initialize { FirstBoot.prepare_database }

    # X-Sendfile for a server that sends the files which it names, none for other servers.
    config.action_dispatch.x_sendfile_header = ENV.fetch("SENDFILE_HEADER", nil)
    config.public_file_server.enabled = true
    config.log_level = ENV.fetch("LOG_LEVEL", "info").to_sym
  end
end
