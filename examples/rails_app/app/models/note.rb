# frozen_string_literal: true

# A note that a traveller has left at a stop.
class Note < ApplicationRecord
  TEXT_LENGTH_MAX = 140

  belongs_to :stop

  validates :text, presence: true, length: { maximum: TEXT_LENGTH_MAX }

  scope :newest_first, -> { order(created_at: :desc, id: :desc) }
end
