# frozen_string_literal: true

module Thruway
  # Lets Rails keep the state of a request by fiber, unless the application says otherwise.
  class Railtie < Rails::Railtie
    config.before_configuration do |application|
      application.config.active_support.isolation_level ||= :fiber
    end
  end
end
